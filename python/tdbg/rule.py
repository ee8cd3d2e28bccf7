"""Rules written in Python: smdebug's Rule class and what drives it.

    class Spike(Rule):
        def __init__(self, base_trial, threshold=10.0):
            super().__init__(base_trial)
            self.threshold = float(threshold)

        def set_required_tensors(self, step):
            for name in self.base_trial.tensor_names(collection="gradients"):
                self.req_tensors.add(name, steps=[step])

        def invoke_at_step(self, step):
            return any(t.reduction_value(step, "max", abs=True) > self.threshold for t in self.req_tensors.get())

    invoke_rule(Spike(create_trial(path)), raise_eval_cond=True)

Steps are global steps. Everything here works on any trial object with smdebug's methods.
"""

from __future__ import annotations

import json
import logging
from abc import ABC, abstractmethod
from contextlib import ExitStack, contextmanager

from .exceptions import (
    NoMoreProfilerData,
    RuleEvaluationConditionMet,
    StepUnavailable,
    TensorUnavailable,
    TensorUnavailableForStep,
)
from .modes import ModeKeys

_logger = logging.getLogger("smdebug")


@contextmanager
def _still(trials):
    """Trials that do not look for new data meanwhile; afterwards they do what they did before."""
    with ExitStack() as stack:
        for trial in trials:
            before = getattr(trial, "dynamic_refresh", None)
            if before is None:
                continue
            trial.dynamic_refresh = False
            stack.callback(setattr, trial, "dynamic_refresh", before)
        yield


class RequiredTensorsForTrial:
    """What a rule asks of one trial at one step: tensors, each with the steps at which it is needed."""

    def __init__(self, trial):
        self.trial = trial
        self._steps = {}  # name -> steps

    def add(self, name, steps, should_match_regex=False):
        """:param steps: global steps. With `should_match_regex`, every tensor whose name `name` matches.

        :raises TensorUnavailable: no such tensor
        """
        if should_match_regex:
            names = self.trial.tensor_names(regex=name)
            if not names:
                raise TensorUnavailable(name)
        else:
            if not self.trial.has_tensor(name):
                raise TensorUnavailable(name)
            names = [name]
        for found in names:
            self._steps.setdefault(found, set()).update(steps)

    def get_names(self):
        return sorted(self._steps)

    def get(self):
        return [self.trial.tensor(name) for name in self.get_names()]

    def get_tensor_steps(self, name):
        return sorted(self._steps[name]) if name in self._steps else None

    def clear(self):
        self._steps.clear()

    def fetch(self):
        """Waits for the steps and reads every value once. Raises as Trial.wait_for_steps and Tensor.value do."""
        steps = sorted({step for steps in self._steps.values() for step in steps})
        if not steps:
            return
        self.trial.wait_for_steps(steps, ModeKeys.GLOBAL)
        for name, steps in self._steps.items():
            tensor = self.trial.tensor(name)
            for step in sorted(steps):
                tensor.value(step)


class RequiredTensors:
    """Requirements over all of a rule's trials. `trial=None` means the base trial."""

    def __init__(self, base_trial, other_trials=None):
        self._base = base_trial
        self._by_trial = [(trial, RequiredTensorsForTrial(trial)) for trial in [base_trial, *(other_trials or [])]]

    def _of(self, trial):
        trial = self._base if trial is None else trial
        for known, required in self._by_trial:
            if known is trial:
                return required
        raise ValueError("not a trial of this rule; pass it in other_trials")

    def add(self, name, steps, trial=None, should_match_regex=False):
        self._of(trial).add(name, steps, should_match_regex)

    def get(self, trial=None):
        return self._of(trial).get()

    def get_names(self, trial=None):
        return self._of(trial).get_names()

    def get_tensor_steps(self, name, trial=None):
        return self._of(trial).get_tensor_steps(name)

    def clear(self):
        for _, required in self._by_trial:
            required.clear()

    def fetch(self):
        for _, required in self._by_trial:
            required.fetch()


class Actions:
    """What `action_str` asks for, as JSON: one object or a list, each with a `name`.

    Reported only: stopping and telling people is done by whoever watches the run (`tdbg run --on-issue stop`,
    `exec:`, `webhook:`), so that a rule never acts behind its user's back (docs/migrating-from-smdebug.md).

    :raises json.JSONDecodeError: not JSON
    """

    KNOWN = {"stoptraining": ("training_job_prefix",), "email": ("endpoint",), "sms": ("endpoint",)}

    def __init__(self, actions_str="", rule_name=""):
        self.rule_name = rule_name
        self.actions = []
        if not (actions_str or "").strip():
            return
        document = json.loads(actions_str)
        for item in document if isinstance(document, list) else [document]:
            name = str(item.get("name", "")).lower() if isinstance(item, dict) else ""
            missing = [key for key in self.KNOWN.get(name, ()) if key not in item]
            if name not in self.KNOWN or missing:
                what = f"no {missing[0]}" if missing else f"names are {', '.join(self.KNOWN)}"
                _logger.warning("rule %s: action %r is skipped: %s", rule_name, item, what)
                continue
            self.actions.append(item)

    def invoke(self, rule_name=""):
        for action in self.actions:
            _logger.warning("rule %s fired; its action %s is left to the watcher (--on-issue)",
                            rule_name or self.rule_name, json.dumps(action))


class Rule(ABC):
    """A condition that is looked at step by step.

    :param base_trial: the trial that is judged
    :param action_str: see Actions
    :param other_trials: further trials that the rule compares with
    """

    def __init__(self, base_trial, action_str="", other_trials=None):
        if action_str is not None and not isinstance(action_str, str):
            # Rules written before there were actions hand other_trials over here.
            action_str, other_trials = "", action_str
        self.base_trial = base_trial
        self.other_trials = list(other_trials or [])
        self.trials = [base_trial, *self.other_trials]
        self.req_tensors = RequiredTensors(base_trial, self.other_trials)
        self.logger = _logger
        self.rule_name = type(self).__name__
        self.report = {"RuleTriggered": 0, "Violations": 0, "Details": {}, "Datapoints": 0, "RuleParameters": ""}
        self._actions = Actions(action_str, self.rule_name)

    def set_required_tensors(self, step):
        """Optional: says with `self.req_tensors.add` what is needed at `step`; it is fetched before the step is judged."""

    @abstractmethod
    def invoke_at_step(self, step):
        """True if the condition is met at this global step."""

    def invoke(self, step):
        """Waits for `step` and judges it.

        :raises RuleEvaluationConditionMet: the condition is met (after the actions)
        """
        self.base_trial.wait_for_steps([step])
        with _still(self.trials):
            self.req_tensors.clear()
            self.set_required_tensors(step)
            self.req_tensors.fetch()
            met = self.invoke_at_step(step)
        if met:
            self._actions.invoke(self.rule_name)
            raise RuleEvaluationConditionMet(self.rule_name, step)


def invoke_rule(rule_obj, start_step=0, end_step=None, raise_eval_cond=False):
    """Asks `rule_obj` at start_step, start_step + 1, ... below end_step (None: until the training's data end).

    What was not saved is passed over. The end of the data raises NoMoreData, as it does in smdebug; so does
    everything else that a rule raises.

    :param raise_eval_cond: a met condition is raised (RuleEvaluationConditionMet); else the rule is asked on
    """
    step = start = 0 if start_step is None else int(start_step)
    met = False
    _logger.info("Started execution of rule %s at step %s", rule_obj.rule_name, start)
    while end_step is None or step < end_step:
        try:
            rule_obj.invoke(step)
        except (TensorUnavailableForStep, StepUnavailable, TensorUnavailable) as missing:
            _logger.debug("rule %s: %s", rule_obj.rule_name, missing)
        except RuleEvaluationConditionMet as condition:
            if raise_eval_cond:
                raise
            met = True
            if condition.end_of_rule:
                break
        except NoMoreProfilerData:
            break
        step += 1
    _logger.info("Ended execution of rule %s at end_step %s; its condition was %smet", rule_obj.rule_name, step,
                 "" if met else "not ")
