"""What smdebug's own tests import of a folder of theirs that is not there: a trial without tensors."""

from smdebug.core.access_layer.utils import training_has_ended
from smdebug.core.collection_manager import CollectionManager


def dummy_trial_creator(trial_dir, num_workers, job_ended):
    manager = CollectionManager()
    manager.create_collection("default")
    manager.set_num_workers(num_workers)
    for worker in range(num_workers):
        manager.export(trial_dir, f"worker_{worker}_collections.json")
    if job_ended:
        training_has_ended(trial_dir)
