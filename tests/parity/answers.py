"""What a trial answers to every question, as JSON: the same script under the real smdebug and under tdbg.

    python answers.py smdebug RUN     # the real one's
    python answers.py tdbg RUN

Numbers that the two may compute differently are rounded by the reader of the answers, not here.
"""

import json
import sys

import numpy as np


def told(ask):
    """A plain answer, or the name of the exception."""
    try:
        return plain(ask())
    except Exception as error:  # noqa: BLE001 - which one is the answer
        return {"exception": [cls.__name__ for cls in type(error).__mro__]}


def plain(answer):
    if isinstance(answer, np.ndarray):
        if answer.dtype.kind in "US":
            return {"dtype": "str", "shape": list(answer.shape), "values": answer.ravel().tolist()}
        return {"dtype": str(answer.dtype), "shape": list(answer.shape),
                "values": [repr(x) for x in answer.astype(complex).ravel().tolist()]}
    if isinstance(answer, (np.generic, float)):
        return float(np.real(answer))
    if isinstance(answer, dict):
        return {str(key): plain(value) for key, value in sorted(answer.items(), key=lambda item: str(item[0]))}
    if isinstance(answer, (list, tuple)):
        return [plain(item) for item in answer]
    return getattr(answer, "name", answer)


def main(which, path):
    if which == "smdebug":
        from smdebug.core.modes import ModeKeys
        from smdebug.trials import create_trial
    else:
        from tdbg import ModeKeys, create_trial

    trial = create_trial(path, name="mine")
    out = {"name": told(lambda: trial.name), "workers": told(trial.workers), "loaded": None}
    out["steps"] = {mode.name: told(lambda m=mode: trial.steps(mode=m)) for mode in ModeKeys}
    out["all steps"] = {mode.name: told(lambda m=mode: trial.steps(mode=m, show_incomplete_steps=True)) for mode in ModeKeys}
    out["loaded"] = trial.loaded_all_steps
    out["last_complete_step"] = told(lambda: trial.last_complete_step)
    out["num_workers"] = told(lambda: trial.num_workers)
    out["modes"] = sorted(mode.name for mode in trial.modes())
    everything = trial.steps(show_incomplete_steps=True)
    asked = sorted({*everything, *(step + 1 for step in everything), 0, 1000})
    out["mode of"] = {step: told(lambda s=step: [trial.mode(s), trial.mode_step(s)]) for step in asked}
    out["global of"] = {f"{mode.name} {step}": told(lambda m=mode, s=step: trial.global_step(m, s))
                        for mode in trial.modes() for step in asked}
    out["state"] = {f"{mode.name} {step}": told(lambda m=mode, s=step: trial.has_passed_step(s, m))
                    for mode in [*trial.modes(), ModeKeys.GLOBAL] for step in asked}
    known = [step for step in asked if trial.has_passed_step(step).value != 2]  # the others would be waited for
    out["wait"] = {step: told(lambda s=step: trial.wait_for_steps([s])) for step in known}
    trial.dynamic_refresh = True  # the real one has switched it off
    names = trial.tensor_names()
    out["names"] = names
    out["names at"] = {step: told(lambda s=step: trial.tensor_names(step=s)) for step in asked}
    out["names of mode"] = {mode.name: told(lambda m=mode: trial.tensor_names(mode=m)) for mode in trial.modes()}
    out["names at mode step"] = {f"{mode.name} {step}": told(lambda m=mode, s=step: trial.tensor_names(step=s, mode=m))
                                 for mode in trial.modes() for step in trial.steps(mode=mode)}
    out["regex"] = {str(r): told(lambda r=r: trial.tensor_names(regex=r))
                    for r in ("weight", "^gradient", ["^loss", "bias$"], "nothing")}
    collections = trial.collections()
    out["collections"] = {name: {"tensor_names": sorted(c.tensor_names), "include_regex": sorted(c.include_regex or [])}
                          for name, c in collections.items()}
    out["of collection"] = {name: told(lambda n=name: trial.tensor_names(collection=n)) for name in [*collections, "unknown"]}
    out["both"] = told(lambda: trial.tensor_names(regex="a", collection="default"))
    out["has"] = {name: told(lambda n=name: trial.has_tensor(n)) for name in [*names, "unknown"]}
    out["unknown tensor"] = told(lambda: trial.tensor("unknown"))
    out["tensors"] = {name: of_tensor(trial, trial.tensor(name), asked, ModeKeys) for name in names}
    json.dump(out, sys.stdout)


def of_tensor(trial, tensor, asked, ModeKeys):
    out = {"name": tensor.name,
           "steps": {mode.name: told(lambda m=mode: tensor.steps(mode=m)) for mode in ModeKeys},
           "prev": {str(n): told(lambda n=n: tensor.prev_steps(max(asked), n)) for n in (None, 1, 2)}}
    workers = [None, *trial.workers(), "nobody"]
    for step in asked:
        at = out[f"at {step}"] = {"workers": told(lambda: tensor.workers(step)),
                                  "reductions": told(lambda: tensor.reduction_values(step))}
        for worker in workers:
            at[f"value {worker}"] = told(lambda w=worker: tensor.value(step, worker=w))
        at["shape"] = told(lambda: tensor.shape(step))
        for name in ("min", "max", "mean", "std", "sum", "l1", "l2", "nonsense"):
            for absolute in (False, True):
                at[f"{'abs ' * absolute}{name}"] = told(lambda: tensor.reduction_value(step, name, abs=absolute))
    for mode in trial.modes():
        for step in trial.steps(mode=mode):
            out[f"{mode.name} {step}"] = {"value": told(lambda: tensor.value(step, mode=mode)),
                                          "shape": told(lambda: tensor.shape(step, mode=mode))}
    return out


if __name__ == "__main__":
    main(*sys.argv[1:])
