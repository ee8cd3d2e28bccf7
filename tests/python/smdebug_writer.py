"""Run by the real smdebug's Python: writes a run with its own classes, one step for each line on stdin, then ends.

Lines: a step's number, or "end" (the end marker, then exit).
"""

import sys

import numpy as np
from smdebug.core.collection_manager import CollectionManager
from smdebug.core.modes import ModeKeys
from smdebug.core.writer import FileWriter


def main(path, workers):
    manager = CollectionManager()
    manager.set_num_workers(workers)
    manager.add("gradients")
    manager.get("gradients").include("^gradient")
    manager.add("weights")
    manager.get("weights").include("^fc.*weight$")
    for worker in range(workers):
        manager.export(path, f"worker_{worker}_collections.json")
    for line in sys.stdin:
        if line.strip() == "end":
            break
        step = int(line)
        mode = ModeKeys.EVAL if step % 3 == 2 else ModeKeys.TRAIN
        for worker in range(workers):
            writer = FileWriter(trial_dir=path, step=step, worker=f"worker_{worker}", mode=mode)
            rng = np.random.default_rng(1000 * worker + step)
            weight = rng.standard_normal((8, 4)).astype(np.float32)
            for name, value in (
                ("fc.weight", weight),
                # Smaller from step to step, and gone at 5.
                ("gradient/fc.weight", weight * np.float32(0 if step == 5 else 10.0**-step)),
                ("loss", np.float32(1.0 / (step + 1))),
                ("smdebug/reductions/abs_mean/gradient/fc.bias", np.float32(0.5)),
                ("names", np.array(["café", "b", ""])),
                ("half", weight.astype(np.float16)),
                ("signed", np.array([-1, 2], np.int8)),
            ):
                writer.write_tensor(tdata=value, tname=name, mode=mode, mode_step=step // 3 if mode == ModeKeys.EVAL
                                    else step - step // 3)
            writer.close()
        print("wrote", step, flush=True)
    open(f"{path}/training_job_end.ts", "w").close()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
