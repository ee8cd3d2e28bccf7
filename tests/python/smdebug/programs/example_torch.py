"""examples/fashion_mnist/train_hook.py, and its trial."""

import sys

from common import run_example, tell
from smdebug import modes
from smdebug.trials import create_trial

OUT = sys.argv[1]
run_example("fashion_mnist/train_hook.py", "--out-dir", OUT, "--steps", "12", "--save-interval", "5", "--test-images", "250")

trial = create_trial(OUT)
tell(dict(names=trial.tensor_names(), steps=trial.steps(mode=modes.TRAIN), evaluated=trial.steps(mode=modes.EVAL),
     gradients=trial.tensor_names(collection="gradients"),
     loss=[float(trial.tensor("CrossEntropyLoss_output_0").value(s, mode=modes.TRAIN)) for s in (0, 5, 10)],
     weight=float(abs(trial.tensor("Net_fc2.weight").value(10, mode=modes.TRAIN)).mean())))
