"""smdebug's Rule and invoke_rule, against a trial made of a dictionary."""

import pickle
import sys

import pytest

from tdbg.errors import DeadlineExceededError, NotFoundError
from tdbg.exceptions import NoMoreData, RuleEvaluationConditionMet, StepUnavailable, TensorUnavailable
from tdbg.modes import ModeKeys
from tdbg.rule import Rule, invoke_rule


class Tensor:
    def __init__(self, name, values, read):
        self.name, self.values, self.read = name, values, read

    def value(self, step):
        self.read.append((self.name, step))
        return self.values[step]


class Trial:
    """Steps 0, 2, 4, then the end."""

    def __init__(self):
        self.values = {"a": {0: 1.0, 2: 5.0, 4: 9.0}, "ab": {0: 0.0, 2: 0.0, 4: 0.0}}
        self.read, self.dynamic_refresh, self.refresh_seen = [], "as it was", []

    def has_tensor(self, name):
        return name in self.values

    def tensor_names(self, regex):
        import re
        return [name for name in self.values if re.search(regex, name)]

    def tensor(self, name):
        self.refresh_seen.append(self.dynamic_refresh)
        return Tensor(name, self.values[name], self.read)

    def wait_for_steps(self, steps, mode=ModeKeys.GLOBAL):
        for step in steps:
            if step > 4:
                raise NoMoreData(step, mode, 4)
            if step % 2:
                raise StepUnavailable(step, mode)


class Above(Rule):
    def __init__(self, trial, threshold=4.0, regex=False):
        super().__init__(trial)
        self.threshold, self.regex, self.judged = threshold, regex, []

    def set_required_tensors(self, step):
        self.req_tensors.add("a", steps=[step], should_match_regex=self.regex)

    def invoke_at_step(self, step):
        self.judged.append(step)
        return any(t.value(step) > self.threshold for t in self.req_tensors.get())


def test_every_saved_step_is_judged_and_the_end_of_the_data_is_raised():
    rule = Above(Trial())
    with pytest.raises(NoMoreData):
        invoke_rule(rule)
    assert rule.judged == [0, 2, 4]


def test_the_end_step_is_exclusive_and_nothing_is_raised_before_it():
    rule = Above(Trial())
    invoke_rule(rule, start_step=1, end_step=4)
    assert rule.judged == [2]


def test_a_met_condition_is_raised_where_that_is_asked_for():
    rule = Above(Trial())
    with pytest.raises(RuleEvaluationConditionMet) as raised:
        invoke_rule(rule, raise_eval_cond=True)
    assert (raised.value.rule_name, raised.value.step) == ("Above", 2)
    assert str(raised.value) == "Evaluation of the rule Above at step 2 resulted in the condition being met"


def test_required_tensors_are_fetched_before_the_step_is_judged():
    trial = Trial()
    rule = Above(trial, threshold=100, regex=True)
    rule.invoke(2)
    assert trial.read[:2] == [("a", 2), ("ab", 2)]
    with pytest.raises(TensorUnavailable):
        rule.req_tensors.add("absent", steps=[0])


def test_trials_stand_still_while_a_step_is_judged_and_go_on_as_before():
    trial = Trial()
    with pytest.raises(RuleEvaluationConditionMet):
        Above(trial).invoke(4)
    assert set(trial.refresh_seen) == {False}
    assert trial.dynamic_refresh == "as it was"


def test_a_condition_that_ends_its_rule_ends_the_loop():
    class Once(Rule):
        def invoke_at_step(self, step):
            raise RuleEvaluationConditionMet(self.rule_name, step, end_of_rule=True)

    invoke_rule(Once(Trial()))


def test_actions_are_parsed_and_unknown_ones_skipped(caplog):
    rule = Above(Trial())
    from tdbg.rule import Actions
    actions = Actions('[{"name": "StopTraining", "training_job_prefix": "p"}, {"name": "fly"}, {"name": "email"}]', "r")
    assert [a["name"] for a in actions.actions] == ["StopTraining"]
    assert "fly" in caplog.text and "endpoint" in caplog.text
    with pytest.raises(ValueError):
        Actions("{not json")
    assert rule.rule_name == "Above"


@pytest.mark.parametrize("error", [
    StepUnavailable(3, ModeKeys.EVAL), NoMoreData(9, ModeKeys.GLOBAL, 4), TensorUnavailable("x"), NotFoundError("no run"),
    RuleEvaluationConditionMet("Above", 4, end_of_rule=True), DeadlineExceededError("late")])
def test_exceptions_survive_the_way_out_of_another_process(error):
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error) and str(again) == str(error) != "" and vars(again) == vars(error)


def test_what_rules_import_of_smdebug_is_there_without_that_package(monkeypatch):
    pytest.importorskip("tdbg._trial", reason="the extension modules are not built")
    from tdbg.rules import load

    monkeypatch.setattr(load, "_smdebug_is_ours", lambda: False)
    before = {name: module for name, module in sys.modules.items() if name.partition(".")[0] == "smdebug"}
    try:
        load.provide_smdebug()
        from smdebug.analysis.utils import no_refresh, parse_bool, parse_list_from_str, refresh
        from smdebug.core.collection import CollectionKeys
        from smdebug.core.modes import str_to_mode_keys
        from smdebug.core.tensor import StepState

        assert parse_bool("true") is True and parse_list_from_str("a,b") == ["a", "b"] and no_refresh is not refresh
        assert CollectionKeys.GRADIENTS == "gradients" and str_to_mode_keys("eval") is ModeKeys.EVAL
        assert StepState.AVAILABLE.value == 1
    finally:
        for name in [name for name in sys.modules if name.partition(".")[0] == "smdebug"]:
            del sys.modules[name]
        sys.modules.update(before)
