"""examples/abalone/train_hook.py, and its trial."""

import sys

from common import run_example, tell
from smdebug.trials import create_trial

OUT = sys.argv[1]
run_example("abalone/train_hook.py", "--out-dir", OUT, "--rounds", "11")

trial = create_trial(OUT)
tell(dict(names=trial.tensor_names(), steps=trial.steps(),
     rmse=[float(trial.tensor("validation-rmse").value(s)[0]) for s in trial.steps()],
     shap={n: [float(v) for v in trial.tensor(n).value(10)] for n in trial.tensor_names(regex="average_shap/")}))
