from .utils import check_dir_exists, has_training_ended, training_has_ended
