from tdbg.hook.locations import END_OF_JOB_FILENAME, check_dir_exists, has_training_ended, training_has_ended
