"""A job of SageMaker's as the command that starts it here: `tdbg run ... -- python entry_point.py ...`."""

from __future__ import annotations

import json
import os
import re
import reprlib
from dataclasses import dataclass, field
from typing import Any

from tdbg.migrate.values import Call, Unknown, is_known

# What smdebug_rulesconfig saves for a built-in rule unless `collections_to_save` says otherwise.
_EVERY_500 = {"save_interval": "500"}
_RULE_COLLECTIONS: dict[str, list[tuple[str, dict[str, str]]]] = {
    "vanishing_gradient": [("gradients", _EVERY_500)],
    "loss_not_decreasing": [("losses", _EVERY_500)],
    "weight_update_ratio": [("weights", _EVERY_500)],
    "check_input_images": [("input_image", {"include_regex": ".*hybridsequential0_input_0", **_EVERY_500})],
    "dead_relu": [("relu_output", {"include_regex": ".*relu_output", **_EVERY_500})],
    "poor_weight_initialization": [("relu_input", {"include_regex": ".*relu_input", **_EVERY_500})],
    "nlp_sequence_ratio": [("input_sequence", {"include_regex": ".*embedding0_input_0", **_EVERY_500})],
    "feature_importance_overweight": [("feature_importance", _EVERY_500)],
    "create_xgboost_report": [*((name, {"save_interval": "5"}) for name in
                                ("metrics", "feature_importance", "predictions", "labels")),
                              ("hyperparameters", {"save_steps": "0"})],
}
# Parameters that a rule job of SageMaker's has beside its rule's own.
_OF_THE_JOB = ("rule_to_invoke", "action_json", "source_s3_uri", "base_trial")
_LOCAL = "/opt/ml/"
_SM_WORD = re.compile(r"\bSM_[A-Z0-9_]+")
_SM_VALUES = {"SM_MODEL_DIR": "model", "SM_OUTPUT_DATA_DIR": "output", "SM_OUTPUT_DIR": "output", "SM_NUM_GPUS": "0",
              "SM_HOSTS": '["localhost"]', "SM_CURRENT_HOST": "localhost", "SM_NUM_CPUS": "1"}


@dataclass
class Job:
    path: str  # of the file that starts it
    line: int
    cell: int
    flags: list[list[str]] = field(default_factory=list)  # of `tdbg run`, each with its values
    environment: dict[str, str] = field(default_factory=dict)
    command: list[str] = field(default_factory=list)  # behind --
    config: dict[str, Any] | None = None  # for --config; smdebug's own layout
    notes: list[str] = field(default_factory=list)
    variables: dict[str, str] = field(default_factory=dict)  # shell variable -> the expression it stands for
    watched: bool = True  # False: opted out, a plain command

    def note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)


class Variable(str):
    """A word of the command that only the program could say: a shell variable."""


def of_call(path: str, call: Call, fit: Call | None, entry_text: Any) -> Job:
    """`entry_text`: path -> the text of that script, or None."""
    job = Job(path, call.line, call.cell)
    if call.name.last == "create_training_job":
        if not call.complete:
            job.note("arguments that are only known when it runs are not in the command")
        _of_request(job, call.keywords, entry_text)
        return job
    _of_estimator(job, call, fit, entry_text)
    return job


# Values ------------------------------------------------------------------------------------------------------------


def _variable(job: Job, name: str, value: Any) -> Variable:
    shell = re.sub(r"\W", "_", name, flags=re.ASCII).upper() or "VALUE"
    shell = f"V{shell}" if shell[0].isdigit() else shell
    job.variables[shell] = _shown(value)
    return Variable(f"${{{shell}:?}}")


def _word(job: Job, name: str, value: Any) -> str:
    """A hyperparameter as the container's toolkit passes it to a script."""
    if not is_known(value):
        return _variable(job, name, value)
    if isinstance(value, dict):
        return ",".join(f"{key}={one}" for key, one in value.items())
    return "" if value is None else str(value)


def _list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else []


def _boolean(value: Any) -> bool:
    return value is True or (isinstance(value, str) and value.lower() == "true")


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _mapping(job: Job, what: str, value: Any) -> dict[str, Any]:
    if value is None or value is False:
        return {}
    if not isinstance(value, dict):
        job.note(f"{what} is only known when the program runs: {_shown(value)}; it is not in the command")
        return {}
    return value


def _shown(value: Any) -> str:
    if isinstance(value, Unknown):
        return value.text
    return value.name.dotted if isinstance(value, Call) else reprlib.repr(value)


# Rules -------------------------------------------------------------------------------------------------------------


def _collections(job: Job, value: Any) -> list[dict[str, Any]]:
    """Collection configurations, as objects of the SDK or as a request has them, in the request's layout."""
    found = []
    for one in _list(value):
        if isinstance(one, Call):
            name, parameters = one.argument("name", 0), one.argument("parameters", 1)
        elif isinstance(one, dict):
            name = one.get("CollectionName", one.get("collection_name"))
            parameters = one.get("CollectionParameters", one.get("collection_parameters"))
        else:
            name, parameters = None, None
        if not isinstance(name, str):
            job.note(f"a collection is only known when the program runs: {_shown(one)}")
            continue
        item: dict[str, Any] = {"CollectionName": name}
        known = _known(job, f"collection {name}", _mapping(job, f"parameters of the collection {name}", parameters))
        if known:
            item["CollectionParameters"] = known
        if item not in found:
            found.append(item)
    if value is not None and not isinstance(value, (list, tuple)):
        job.note(f"collections are only known when the program runs: {_shown(value)}")
    return found


def _known(job: Job, what: str, values: dict[str, Any]) -> dict[str, Any]:
    left = {key: value for key, value in values.items() if not is_known(value)}
    for key, value in left.items():
        job.note(f"{what}: {key} is only known when the program runs: {_shown(value)}; add it to the configuration")
    return {key: value for key, value in values.items() if key not in left}


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def _parameters(job: Job, rule: str, values: dict[str, Any]) -> list[str]:
    words: list[str] = []
    for key, value in values.items():
        if key in _OF_THE_JOB:
            continue
        if not is_known(value):
            words.append(Variable(f"{key}={_variable(job, f'{rule}_{key}', value)}"))
        elif isinstance(value, (list, tuple)):
            words.append(f"{key}={','.join(map(str, value))}")
        else:
            words.append(f"{key}={value}")
    return words


def _actions(job: Job, value: Any) -> list[str]:
    """`on_issue=` words of an action, or of a list of them."""
    if value is None:
        return []
    if not isinstance(value, Call):
        job.note(f"an action is only known when the program runs: {_shown(value)}")
        return []
    kind = value.name.last
    if kind == "ActionList":
        return [word for one in value.arguments for word in _actions(job, one)]
    if kind == "StopTraining":
        if value.argument("training_job_prefix", 0) is not None:
            job.note("training_job_prefix chooses among jobs of a service; here the job that is watched is stopped")
        return ["on_issue=stop"]
    first = value.argument({"Email": "email_address", "SMS": "phone_number"}.get(kind, ""), 0)
    if kind in ("Email", "SMS"):
        return [f"on_issue={kind.lower()}:{_word(job, kind, first)}"]
    job.note(f"no such action: {kind}")
    return []


def _actions_of_json(job: Job, text: Any) -> list[str]:
    """Those of a request's `action_json`."""
    if not isinstance(text, str) or not text:
        return []
    try:
        actions = json.loads(text.replace('\\"', '"'))
    except (ValueError, RecursionError):
        job.note("action_json cannot be read")
        return []
    words = []
    for one in actions if isinstance(actions, list) else [actions]:
        kind = _text(one.get("name")).lower() if isinstance(one, dict) else ""
        if kind == "stoptraining":
            words.append("on_issue=stop")
        elif kind in ("email", "sms"):
            words.append(f"on_issue={kind}:{one.get('endpoint', '')}")
        else:
            job.note(f"no such action: {kind or one}")
    return words


def _other_trials(job: Job, words: list[str], value: Any) -> None:
    paths = [_text(one) for one in _list(value)]
    if paths:
        words.append(f"other_trials={','.join(paths)}")
        if any(path.startswith("s3:") for path in paths):
            job.note("other_trials: copy the runs that lie in S3 here, and name the folders")


def _rule(job: Job, one: Any, collections: list[dict[str, Any]]) -> None:
    """Adds a rule's flag; what it saves to `collections`."""
    if not isinstance(one, Call):
        job.note(f"a rule is only known when the program runs: {_shown(one)}; it is not in the command")
        return
    kind = one.name.dotted
    parameters = _mapping(job, "a rule's parameters", one.argument("rule_parameters"))
    if kind.endswith("Rule.custom"):
        name, source = one.argument("name", 0), one.argument("source", 4)
        invoked = one.argument("rule_to_invoke", 5)
        if not isinstance(source, str) or not isinstance(invoked, str):
            job.note(f"the custom rule {_shown(name)}: its source and rule_to_invoke are not in the text")
            return
        if source.startswith("s3:"):
            job.note(f"copy {source} here first: a rule's file is a local one")
            source = os.path.basename(source)
        flag = ["--rule-file", f"{source}:{invoked}"]
        if isinstance(name, str) and name != invoked:
            flag.append(f"name={name}")
        saved = _collections(job, one.argument("collections_to_save"))
        label = invoked
    elif kind.endswith("Rule.sagemaker") and "ProfilerRule" not in kind:
        base = one.argument("base_config", 0)
        if not isinstance(base, Call):
            job.note(f"a rule's base_config is not in the text: {_shown(base)}")
            return
        label = base.name.last
        flag = ["--rule", label]
        name = one.argument("name", 1)
        if isinstance(name, str):
            flag.append(f"name={name}")
        own = one.argument("collections_to_save")
        saved = _collections(job, own) if own is not None else _defaults(label)
    elif "Profiler" in kind:
        return  # its line says that it is not offered
    else:
        job.note(f"a rule is only known when the program runs: {kind}; it is not in the command")
        return
    flag += _parameters(job, label, parameters)
    _other_trials(job, flag, one.argument("other_trials_s3_input_paths"))
    flag += _actions(job, one.argument("actions"))
    job.flags.append(flag)
    collections += [item for item in saved if item not in collections]


def _defaults(rule: str) -> list[dict[str, Any]]:
    return [{"CollectionName": name, "CollectionParameters": dict(parameters)}
            for name, parameters in _RULE_COLLECTIONS.get(rule, ())]


# Estimators --------------------------------------------------------------------------------------------------------


def _of_estimator(job: Job, call: Call, fit: Call | None, entry_text: Any) -> None:
    if not call.complete:
        job.note("arguments that are only known when it runs (`**`) are not in the command")
    collections: list[dict[str, Any]] = []
    for rule in _list(call.argument("rules")):
        _rule(job, rule, collections)
    if isinstance(call.argument("rules"), Unknown):
        job.note(f"rules are only known when the program runs: {_shown(call.argument('rules'))}")
    hook = call.argument("debugger_hook_config")
    if hook is False:
        if job.flags:
            job.note("debugger_hook_config=False: rules would find no tensors there; here they bring what they need")
        else:
            job.watched = False
            job.note("debugger_hook_config=False: nothing is captured, the script runs as it is")
    parameters: dict[str, Any] = {}
    if isinstance(hook, Call):
        said = _mapping(job, "hook_parameters", hook.argument("hook_parameters", 2))
        parameters = _known(job, "hook_parameters", said)
        collections = [*_collections(job, hook.argument("collection_configs", 3)), *collections]
        if _text(hook.argument("s3_output_path", 0)).startswith("s3:"):
            job.note("tensors stay in the run directory; "
                     f"`--upload {hook.argument('s3_output_path', 0)}` puts them into the bucket, too")
    elif isinstance(hook, Unknown):
        job.note(f"debugger_hook_config is only known when the program runs: {hook.text}; write --config yourself")
    _configure(job, parameters, collections)
    board = call.argument("tensorboard_output_config")
    if board is not None:
        _tensorboard(job, board.argument("container_local_output_path", 1) if isinstance(board, Call) else None)
    if call.argument("use_spot_instances") is True or call.argument("train_use_spot_instances") is True:
        _spot(job, call.argument("checkpoint_local_path"))
    elif call.argument("checkpoint_s3_uri") is not None or call.argument("checkpoint_local_path") is not None:
        job.flags.append(["--checkpoint-dir", _local(call.argument("checkpoint_local_path"))])
    for keyword in ("max_run", "train_max_run"):
        if isinstance(call.argument(keyword), int):
            job.flags.append(["--max-runtime", str(call.argument(keyword))])
    if fit is not None and fit.argument("wait", 1) is False:
        job.flags.append(["--detach"])
    count = call.argument("instance_count", None, call.argument("train_instance_count"))
    if (isinstance(count, int) and count > 1) or call.argument("distribution") or call.argument("distributions"):
        job.note("several machines or processes: put your launcher (torchrun, mpirun) in front of python")
    hyperparameters = _mapping(job, "hyperparameters", call.argument("hyperparameters"))
    if call.name.last == "TensorFlow" and call.argument("model_dir") is not False:
        hyperparameters = {**hyperparameters, "model_dir": "model"}
    entry, folder = call.argument("entry_point"), call.argument("source_dir")
    _command(job, entry, folder, hyperparameters, _channels(job, fit), entry_text)


def _channels(job: Job, fit: Call | None) -> dict[str, str]:
    """Name -> folder."""
    inputs = fit.argument("inputs", 0) if fit is not None else None
    if inputs is None:
        return {}
    if not isinstance(inputs, dict):
        inputs = {"training": inputs}
    found = {}
    for name, value in inputs.items():
        if isinstance(value, Call):
            value = value.argument("s3_data", 0)
        text = _text(value)
        if text.startswith("file://"):
            found[str(name)] = text.removeprefix("file://")
        else:
            found[str(name)] = f"data/{name}"
            job.note(f"copy the channel {name} ({text or _shown(value)}) to data/{name} first")
    return found


def _configure(job: Job, parameters: dict[str, Any], collections: list[dict[str, Any]]) -> None:
    config: dict[str, Any] = {}
    if parameters:
        config["HookParameters"] = parameters
    if collections:
        config["CollectionConfigurations"] = collections
    if config:
        job.config = config
    elif job.watched and not job.flags:
        job.note("nothing was asked for, so losses were kept every 500 steps; here statistics of weights, gradients "
                 "and losses are kept at every step")


def _tensorboard(job: Job, path: Any) -> None:
    text = _text(path)
    job.flags.append(["--tensorboard", "tensorboard" if not text or text.startswith(_LOCAL) else text])


def _local(path: Any) -> str:
    """A path of the container's as one in the working directory; the default checkpoints' of anything else."""
    return os.path.normpath(path).removeprefix(_LOCAL) if _text(path).startswith(_LOCAL) else "checkpoints"


def _spot(job: Job, checkpoints: Any) -> None:
    job.flags.append(["--checkpoint-dir", _local(checkpoints)])
    job.flags.append(["--max-restarts", "10"])
    job.flags.append(["--restart-on", "preempted"])


def _command(job: Job, entry: Any, folder: Any, hyperparameters: dict[str, Any], channels: dict[str, str],
             entry_text: Any) -> None:
    if entry is None:
        job.note("an algorithm without a script: its training is inside SageMaker's image; here a script of yours "
                 "trains (examples/sagemaker/abalone.py does) and gets the hyperparameters as arguments")
        entry = _variable(job, "training_script", Unknown("the script that trains"))
        job.environment.update({f"SM_CHANNEL_{name.upper()}": folder for name, folder in channels.items()})
    elif not isinstance(entry, str):
        entry = _variable(job, "entry_point", entry)
    if isinstance(folder, str) and folder and not folder.startswith(("s3:", "git")):
        entry = entry if isinstance(entry, Variable) else os.path.normpath(os.path.join(folder, entry))
    elif isinstance(folder, str) and folder:
        job.note(f"the source {folder} is elsewhere: fetch it first")
    elif folder is not None:
        job.note(f"source_dir is only known when the program runs: {_shown(folder)}")
    job.command = [*(["sh"] if entry.endswith(".sh") else ["python"]), entry]
    for name in sorted(map(str, hyperparameters)):
        if name.startswith("sagemaker_"):
            continue
        value = hyperparameters[name]
        word = _word(job, name, value)
        if word.startswith(_LOCAL):
            word = _local(word)
            job.note(f"--{name}: a path of SageMaker's container; here {word}")
        job.command += [f"-{name}" if len(name) == 1 else f"--{name}", word]
    text = None if isinstance(entry, Variable) else entry_text(os.path.join(os.path.dirname(job.path), entry))
    if text is None:
        if not isinstance(entry, Variable):
            job.note(f"{entry} is not there; the command is right once it is")
    else:
        _surroundings(job, text, channels)


def _surroundings(job: Job, text: str, channels: dict[str, str]) -> None:
    """What SageMaker's container puts into the environment, as far as the script asks for it."""
    for name in sorted(set(_SM_WORD.findall(text))):
        if name.startswith("SM_CHANNEL_"):
            channel = name.removeprefix("SM_CHANNEL_").lower()
            lower = {key.lower(): value for key, value in channels.items()}
            job.environment[name] = lower.get(channel, f"data/{channel}")
        elif name in _SM_VALUES:
            job.environment[name] = _SM_VALUES[name]
    for name in ("SM_MODEL_DIR", "SM_OUTPUT_DATA_DIR"):
        if name in job.environment:
            job.note(f"{name}: mkdir -p {job.environment[name]}, where the script does not make it")


# Requests ----------------------------------------------------------------------------------------------------------


def is_request(document: Any) -> bool:
    return isinstance(document, dict) and ("DebugHookConfig" in document or "DebugRuleConfigurations" in document
                                           or ("TrainingJobName" in document and "AlgorithmSpecification" in document))


def of_request(path: str, document: dict[str, Any], entry_text: Any) -> Job:
    """Of a request of create_training_job in a file."""
    job = Job(path, 1, 0)
    _of_request(job, document, entry_text)
    return job


def _of_request(job: Job, request: dict[str, Any], entry_text: Any) -> None:
    for one in _list(request.get("DebugRuleConfigurations")):
        entry = _mapping(job, "a rule", one)
        parameters = dict(_mapping(job, "RuleParameters", entry.get("RuleParameters")))
        invoked, source = parameters.get("rule_to_invoke"), parameters.get("source_s3_uri")
        if not isinstance(invoked, str):
            job.note(f"a rule without rule_to_invoke: {_shown(entry.get('RuleConfigurationName'))}")
            continue
        if source is not None:
            file = os.path.basename(_text(source)) or "rule.py"
            job.note(f"copy {_shown(source)} here first: a rule's file is a local one")
            flag = ["--rule-file", f"{file}:{invoked}"]
        else:
            flag = ["--rule", _snake(invoked)]
        name = entry.get("RuleConfigurationName")
        if isinstance(name, str) and name != invoked:
            flag.append(f"name={name}")
        flag += _parameters(job, invoked, parameters)
        job.flags.append([*flag, *_actions_of_json(job, parameters.get("action_json"))])
    hook = _mapping(job, "DebugHookConfig", request.get("DebugHookConfig"))
    _configure(job, _known(job, "HookParameters", _mapping(job, "HookParameters", hook.get("HookParameters"))),
               _collections(job, hook.get("CollectionConfigurations")))
    if "TensorBoardOutputConfig" in request:
        _tensorboard(job, _mapping(job, "TensorBoardOutputConfig", request["TensorBoardOutputConfig"]).get("LocalPath"))
    if _boolean(request.get("EnableManagedSpotTraining")):
        checkpoints = _mapping(job, "CheckpointConfig", request.get("CheckpointConfig"))
        _spot(job, checkpoints.get("LocalPath"))
    limit = _mapping(job, "StoppingCondition", request.get("StoppingCondition")).get("MaxRuntimeInSeconds")
    if isinstance(limit, int):
        job.flags.append(["--max-runtime", str(limit)])
    texts = _mapping(job, "HyperParameters", request.get("HyperParameters"))
    hyperparameters = {key: _decoded(value) for key, value in texts.items()}
    _command(job, hyperparameters.get("sagemaker_program"), None, hyperparameters, {}, entry_text)


def _decoded(value: Any) -> Any:
    """A request's hyperparameter: JSON where it is that, else as it is."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value


