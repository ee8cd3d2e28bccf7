"""smdebug's hook, beyond what the programs of tests/python/smdebug compare with the real one."""

import copy
import gc
import io
import json
import os
import subprocess
import sys
import types
import weakref

import numpy as np
import pytest
import torch
from torch import nn

pytest.importorskip("tdbg._capture", reason="the extension modules are not built (TDBG_PYTHON=ON)")
tdbg = pytest.importorskip("tdbg")
pytest.importorskip("tdbg._trial")

from tdbg.adaptors.torch import ranks  # noqa: E402
from tdbg.exceptions import InvalidCollectionConfiguration, SMDebugRuntimeError, SMDebugTypeError, SMDebugValueError  # noqa: E402
from tdbg.hook import Collection, SaveConfig, SaveConfigMode, singleton  # noqa: E402
from tdbg.hook.torch import Hook, get_hook  # noqa: E402
from tdbg.modes import ModeKeys as modes  # noqa: E402


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    for name in ("TDBG_RUN", "TDBG_ATTEMPT", "USE_SMDEBUG", "SMDEBUG_CONFIG_FILE_PATH", "TRAINING_JOB_NAME"):
        monkeypatch.delenv(name, raising=False)
    yield
    if singleton.current() is not None:
        singleton.current().close()
    singleton.del_hook()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.norm = nn.Linear(4, 3), nn.BatchNorm1d(3)

    def forward(self, x):
        return torch.relu(self.norm(self.fc(x)))


def every(**kwargs):
    return {"save_config": SaveConfig(save_interval=1), **kwargs}


def train(net, hook, steps=2):
    for _ in range(steps):
        hook.set_mode(modes.TRAIN)
        net.zero_grad()
        net(torch.randn(5, 4)).sum().backward()


def test_a_subclass_may_say_itself_what_a_module_gives(tmp_path):
    class Own(Hook):
        def forward_hook(self, module, inputs, outputs):
            name = module._module_name
            self._write_inputs(name, inputs)
            if self.mode == modes.EVAL:
                outputs.register_hook(self.backward_hook(name + "_output"))
                if isinstance(module, nn.BatchNorm1d):
                    self._write_outputs(name + ".running_mean", module.running_mean)
            self._write_outputs(name, outputs)
            self.last_saved_step = self.step

    hook = Own(str(tmp_path / "run"), **every(include_regex=["running_mean", "norm_output", "gradient/norm"]))
    net = Net()
    hook.register_module(net)
    train(net, hook)
    hook.set_mode(modes.EVAL)
    net(torch.randn(5, 4)).sum().backward()
    hook.close()
    trial = tdbg.open(tmp_path / "run")
    assert trial.tensor_names() == ["gradient/norm_output", "norm.running_mean_output_0", "norm_output_0"]
    assert trial["norm_output_0"].steps() == [0, 1, 2]
    assert trial["norm.running_mean_output_0"].steps(mode="eval") == [0]
    assert trial["gradient/norm_output"].steps() == [2]


def test_of_several_gradients_of_a_name_in_a_step_the_last_is_the_steps(tmp_path):
    directory = tmp_path / "run"
    hook = Hook(str(directory), **every(include_collections=["gradients"],
                                        reduction_config={"reductions": ["max"], "save_raw_tensor": True}))
    net = nn.Linear(2, 1)
    hook.register_module(net)
    out = net(torch.ones(1, 2))
    out.sum().backward(retain_graph=True)
    (3 * out).sum().backward(retain_graph=True)
    (2 * out).sum().backward()
    hook.close()
    for trial in (tdbg.create_trial(str(directory)), tdbg.open(directory)):
        gradient = trial.tensor("gradient/Linear_weight")
        np.testing.assert_array_equal(gradient.value(0), np.full((1, 2), 2, np.float32))
        assert gradient.reduction_value(0, "max") == 2 and gradient.series("max")[1].tolist() == [2]


def test_a_scripts_own_values_are_kept_in_the_step_they_were_said_in(tmp_path):
    hook = Hook(str(tmp_path / "run"), save_config=SaveConfig(save_interval=100))
    net = nn.Linear(2, 1)
    hook.register_module(net)
    hook.save_scalar("early", 5)
    for n in range(3):
        net(torch.ones(1, 2))
        value = np.full(3, n, np.int16)
        hook.save_tensor("mine", value, ["a", "b"])
        hook.save_tensor("mine", value + 1)
        value[:] = -1
        hook.save_scalar("lr", torch.tensor(n, dtype=torch.bfloat16))
        hook.save_tensor("text", "not numbers")
    hook.close()
    hook.save_scalar("late", 1)
    hook.close()
    trial = tdbg.create_trial(str(tmp_path / "run"))
    assert trial.steps() == [0, 1, 2]
    np.testing.assert_array_equal(trial.tensor("mine").value(1), np.array([2, 2, 2], np.int16))
    assert [float(trial.tensor("scalar/lr").value(s)[0]) for s in trial.steps()] == [0, 1, 2]
    assert trial.tensor("scalar/early").steps() == [0]
    assert not trial.has_tensor("scalar/late")


def test_a_scalar_of_each_epoch_is_in_the_next_step_that_is_saved(tmp_path):
    hook = Hook(str(tmp_path / "run"), save_config=SaveConfig(save_interval=4), include_collections=["weights"])
    net = nn.Linear(2, 1)
    hook.register_module(net)
    for epoch in range(3):
        for _ in range(5):
            net(torch.ones(1, 2))
        hook.save_scalar("accuracy", epoch)
    hook.close()
    trial = tdbg.create_trial(str(tmp_path / "run"))
    values = trial.tensor("scalar/accuracy").values()
    assert {step: float(value[0]) for step, value in values.items()} == {4: 0, 12: 1, 14: 2}
    assert trial.steps() == [0, 4, 8, 12, 14]


def test_values_of_any_kind_are_kept_or_passed_over_and_the_steps_go_on(tmp_path):
    hook = Hook(str(tmp_path / "run"), **every(include_collections=["weights"]))
    net = nn.Linear(2, 1)
    hook.register_module(net)
    net(torch.ones(1, 2))
    hook.save_tensor("swapped", np.array([1, 2], ">i4"))
    hook.save_tensor("long", np.array([0.5], np.longdouble))
    hook.save_scalar("long", np.longdouble(1.5))
    hook.save_tensor("conjugate", torch.tensor([1 + 2j]).conj())
    hook.save_tensor("eight", torch.tensor([1.5]).to(torch.float8_e5m2))
    hook.save_tensor("sparse", torch.eye(2).to_sparse())
    hook.save_tensor("ragged", [[1], [1, 2]])
    net(torch.ones(1, 2))
    hook.close()
    trial = tdbg.create_trial(str(tmp_path / "run"))
    assert trial.steps() == [0, 1]
    assert trial.tensor("swapped").value(0).tolist() == [1, 2]
    assert trial.tensor("long").value(0).tolist() == [0.5] and trial.tensor("scalar/long").value(0).tolist() == [1.5]
    assert trial.tensor("conjugate").value(0).tolist() == [1 - 2j] and trial.tensor("eight").value(0).tolist() == [1.5]
    assert not {"sparse", "ragged"}.intersection(trial.tensor_names())


def test_a_collection_that_save_tensor_makes_in_the_middle_costs_no_step(tmp_path):
    hook = Hook(str(tmp_path / "run"), **every(save_all=True))
    net = nn.Linear(2, 1)
    hook.register_module(net)
    for n in range(3):
        net(torch.ones(1, 2))
        if n == 0:
            hook.save_tensor("mine", np.arange(2), "late")
        hook.save_scalar("n", n)
        assert hook.should_save_tensor_or_collection("mine", "late")
    hook.close()
    trial = tdbg.create_trial(str(tmp_path / "run"))
    assert [float(trial.tensor("scalar/n").value(step)[0]) for step in trial.steps()] == [0, 1, 2]


def test_of_one_worker_the_others_say_nothing_at_each_step(tmp_path, caplog):
    class Second(Hook):
        def _rank(self):
            return 1, 2

    hook, net = Second(str(tmp_path / "run"), **every(include_collections=["weights"])), nn.Linear(2, 1)
    hook.register_module(net)
    for n in range(3):
        net(torch.ones(1, 2))
        hook.save_scalar("n", n)
        hook.save_tensor("t", np.ones(2))
    hook.close()
    assert caplog.text == "" and not (tmp_path / "run").exists()
    hook = Hook(str(tmp_path / "other"))
    hook.close()
    for n in range(3):
        hook.save_scalar("n", n)
    assert caplog.text.count("after close(): not kept") == 1


def test_workers_of_horovod_know_their_ranks(monkeypatch):
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)

    def not_initialised():
        raise ValueError("Horovod has not been initialized; use hvd.init().")

    assert ranks.of_process() == (0, 1)
    monkeypatch.setitem(sys.modules, "horovod.torch", types.SimpleNamespace(rank=not_initialised, size=not_initialised))
    assert ranks.of_process() == (0, 1)
    monkeypatch.setitem(sys.modules, "horovod.torch", types.SimpleNamespace(rank=lambda: 1, size=lambda: 2))
    assert ranks.of_process() == (1, 2)


def test_a_parameter_that_is_replaced_is_recorded_as_it_is(tmp_path):
    hook, net = Hook(str(tmp_path / "run"), **every(include_collections=["weights"])), nn.Linear(2, 1)
    hook.register_module(net)
    net(torch.ones(1, 2))
    net.weight = nn.Parameter(torch.full((1, 2), 7.0))
    net(torch.ones(1, 2))
    net.load_state_dict({"weight": torch.full((1, 2), 8.0), "bias": torch.zeros(1)}, assign=True)
    net(torch.ones(1, 2))
    hook.close()
    trial = tdbg.open(tmp_path / "run")
    assert [trial["Linear_weight"].value(step).tolist() for step in (1, 2)] == [[[7, 7]], [[8, 8]]]


def test_a_run_that_cannot_be_made_costs_the_script_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("TDBG_STRICT", "0")
    (tmp_path / "file").write_text("no directory")
    hook, net = Hook(str(tmp_path / "file" / "run"), **every(include_collections=["weights"])), nn.Linear(2, 1)
    hook.register_module(net)
    for n in range(3):
        net(torch.ones(1, 2))
        hook.save_scalar("n", n)
    hook.close()
    assert "could not capture" in capsys.readouterr().err


def test_values_without_a_step_are_a_step(tmp_path):
    hook = Hook(str(tmp_path / "run"))
    hook.save_scalar("only", 2.5)
    hook.close()
    assert tdbg.create_trial(str(tmp_path / "run")).tensor("scalar/only").value(0)[0] == 2.5


def test_what_smdebug_cannot_keep_is_kept(tmp_path):
    hook = Hook(str(tmp_path / "run"), **every(include_collections=["weights"], include_regex=["Linear_output"]))
    net = nn.Linear(2, 2).to(torch.bfloat16)
    hook.register_module(net)
    net(torch.ones(1, 2, dtype=torch.bfloat16))
    net(torch.ones(0, 2, dtype=torch.bfloat16))
    hook.close()
    trial = tdbg.open(tmp_path / "run")
    assert trial["Linear_weight"].dtype == "bfloat16"
    assert trial["Linear_output_0"].steps() == [0]


@pytest.mark.filterwarnings("ignore")
def test_saved_models_copies_and_scripts_carry_no_hook(tmp_path):
    hook = Hook(str(tmp_path / "run"), **every(include_collections=["weights", "gradients"], include_regex=["fc"]))
    net = Net()
    hook.register_module(net)
    train(net, hook, 1)
    file = io.BytesIO()
    torch.save(net, file)
    file.seek(0)
    torch.load(file, weights_only=False)(torch.randn(5, 4))
    copied = copy.deepcopy(net)
    copied(torch.randn(5, 4))
    assert hook.step == 0
    for which in (net, copied):
        torch.jit.script(which)
    assert net._forward_pre_hooks and net.fc._forward_hooks and not copied._forward_pre_hooks and not copied.fc._forward_hooks
    hook.cleanup()
    assert not net._forward_pre_hooks and not net.fc._forward_hooks and "__reduce_ex__" not in nn.Module.__dict__
    torch.jit.script(net)


def test_a_shallow_copy_and_a_replica_may_be_called(tmp_path):
    hook = Hook(str(tmp_path / "run"), **every(include_collections=["weights"]))
    net = nn.Sequential(nn.Linear(4, 3))
    hook.register_module(net)
    replica, shallow = net._replicate_for_data_parallel(), copy.copy(net)
    x = torch.ones(2, 4)
    for _ in range(2):
        assert torch.equal(replica(x), net(x)) and torch.equal(shallow(x), net(x))
    hook.forward_pre_hook(shallow, (x,))
    hook.close()
    assert tdbg.open(tmp_path / "run")["Sequential_0.weight"].steps() == [0, 1, 2, 3]


@pytest.mark.filterwarnings("ignore")
def test_a_model_that_is_quantised_in_place_is_called_as_without(tmp_path):
    hook = Hook(str(tmp_path / "run"), **every(include_regex=["0_input", "0_output"]))
    net = nn.Sequential(nn.Linear(4, 3), nn.ReLU())
    hook.register_module(net)
    train(net, hook, 1)
    expected = torch.ao.quantization.quantize_dynamic(copy.deepcopy(net), {nn.Linear})(torch.ones(2, 4))
    torch.ao.quantization.quantize_dynamic(net, {nn.Linear}, inplace=True)
    assert torch.equal(net(torch.ones(2, 4)), expected)
    hook.close()
    trial = tdbg.open(tmp_path / "run")
    assert trial["0_input_0"].steps() == trial["0_output_0"].steps() == [0, 1]


def test_a_closed_hook_keeps_nothing_alive(tmp_path):
    hook, net, loss = Hook(str(tmp_path / "run"), **every(save_all=True)), Net(), nn.MSELoss()
    hook.register_module(net)
    hook.register_loss(loss)
    train(net, hook)
    left = [weakref.ref(o) for o in (hook, net, loss)]
    hook.close()
    singleton.del_hook()
    del hook, net, loss
    gc.collect()
    assert [reference() for reference in left] == [None] * 3


def test_a_model_that_goes_on_keeps_no_closed_hook(tmp_path):
    net = Net()
    hook = Hook(str(tmp_path / "run"), **every(include_collections=["gradients"]))
    hook.register_module(net)
    train(net, hook)
    left = weakref.ref(hook)
    hook.close()
    singleton.del_hook()
    del hook
    gc.collect()
    assert left() is None and not any(parameter._backward_hooks for parameter in net.parameters())


def test_configuration_that_can_mean_nothing_is_said(tmp_path):
    out = str(tmp_path / "run")
    with pytest.raises(SMDebugRuntimeError, match="out_dir"):
        Hook()
    with pytest.raises(SMDebugValueError, match="s3://"):
        Hook("s3://bucket/prefix")
    with pytest.raises(SMDebugTypeError, match="SaveConfigMode"):
        Hook(out, save_config=5)
    hook = Hook(out, include_regex=["("])
    net = nn.Linear(2, 1)
    hook.register_module(net)
    with pytest.raises(SMDebugValueError, match="include_regex"):
        net(torch.ones(1, 2))
    hook.close()
    hook = Hook(out, include_collections=["mine"])
    hook.get_collection("mine")
    for wrong in (lambda: hook.register_module(5), lambda: hook.register_loss(nn.Linear(1, 1)),
                  lambda: hook.record_tensor_value("x", 3), lambda: hook.save_scalar("x", [1, 2]),
                  lambda: hook.add_collection("x")):
        with pytest.raises(SMDebugTypeError):
            wrong()
    with pytest.raises(SMDebugValueError, match="TRAIN"):
        hook.set_mode("train")
    net = nn.Linear(2, 1)
    hook.register_module(net)
    with pytest.raises(InvalidCollectionConfiguration, match="mine"):
        net(torch.ones(1, 2))
    hook.add_collection(Collection("mine", include_regex=["weight"]))
    net(torch.ones(1, 2))
    hook.close()
    assert "Linear_weight" in tdbg.open(out).tensor_names(collection="mine")
    with pytest.raises(SMDebugRuntimeError, match="has ended"):
        Hook(out)


def test_out_dir_may_hold_other_files(tmp_path):
    (tmp_path / "model.pt").write_text("mine")
    hook = Hook(str(tmp_path), **every(include_collections=["weights"]))
    net = nn.Linear(2, 1)
    hook.register_module(net)
    net(torch.ones(1, 2))
    hook.close()
    assert tdbg.open(tmp_path).tensor_names() == ["Linear_weight"]
    assert (tmp_path / "model.pt").read_text() == "mine"


def test_the_documented_way_to_switch_losses_off_works(tmp_path):
    hook = Hook(str(tmp_path / "run"), **every(include_collections=["weights"]))
    hook.get_collection("losses").save_config.end_step = 0
    net, criterion = nn.Linear(2, 1), nn.MSELoss()
    hook.register_module(net)
    hook.register_loss(criterion)
    criterion(net(torch.ones(1, 2)), torch.ones(1, 1))
    hook.close()
    assert tdbg.open(tmp_path / "run").tensor_names() == ["Linear_weight"]


def test_modes_that_a_save_config_leaves_out_have_the_default(tmp_path):
    hook = Hook(str(tmp_path / "run"), include_collections=["weights"],
                save_config={modes.TRAIN: SaveConfigMode(save_interval=2)})
    net = nn.Linear(2, 1)
    hook.register_module(net)
    for mode in (modes.TRAIN, modes.EVAL):
        hook.set_mode(mode)
        for _ in range(3):
            net(torch.ones(1, 2))
    hook.close()
    trial = tdbg.create_trial(str(tmp_path / "run"))
    assert trial.steps(mode=modes.TRAIN) == [0, 2] and trial.steps(mode=modes.EVAL) == [0]


def test_opting_out(tmp_path, monkeypatch):
    config = tmp_path / "hook.json"
    config.write_text(json.dumps({"LocalPath": str(tmp_path / "run")}))
    monkeypatch.setenv("SMDEBUG_CONFIG_FILE_PATH", str(config))
    assert get_hook() is None
    monkeypatch.setenv("USE_SMDEBUG", "Off")
    assert get_hook(create_if_not_exists=True) is None
    monkeypatch.delenv("USE_SMDEBUG")
    hook = get_hook(create_if_not_exists=True)
    assert hook is get_hook("/nowhere.json", create_if_not_exists=True) and hook.has_default_configuration()
    hook.close()
    singleton.del_hook()
    assert get_hook(str(tmp_path / "absent.json"), create_if_not_exists=True) is None
    with pytest.raises(FileNotFoundError):
        Hook.create_from_json_file(str(tmp_path / "absent.json"))
    config.write_text("{")
    with pytest.raises(json.JSONDecodeError):
        Hook.create_from_json_file()
    config.write_text('{"HookParameters": {"save_interval": "often"}}')
    with pytest.raises(SMDebugValueError, match="HookParameters.save_interval"):
        Hook.create_from_json_file()
    config.write_text('{"HookParameters": {}, "rules": [{"rule": "vanishing_gradient"}]}')
    with pytest.raises(SMDebugValueError, match=r'"rules": a hook says what is saved, and nothing would judge'):
        Hook.create_from_json_file()


def test_a_configuration_that_no_hook_reads_is_told(tmp_path, monkeypatch, caplog):
    from tdbg.hook.torch import Hook
    monkeypatch.setenv("TDBG_CONFIG", '{"rules": ["exploding_tensor"]}')
    hook = Hook(out_dir=str(tmp_path / "run"))
    hook._prepare()
    hook.close()
    assert "nothing judges by rules or on_issue. Start the script with: tdbg run" in caplog.text


SCRIPT = """
import torch
from torch import nn
import torch.nn.functional as F
import smdebug.pytorch as smd
hook = smd.Hook(out_dir="out", save_config=smd.SaveConfig(save_interval=2), include_collections=["gradients"])
net = nn.Linear(4, 2)
hook.register_module(net)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for n in range(6):
    optimizer.zero_grad()
    F.mse_loss(net(torch.ones(3, 4)), torch.zeros(3, 2)).backward()
    optimizer.step()
hook.close()
print(smd.create_trial("out").tensor("gradient/Linear_weight").steps())
"""


def test_under_a_launcher_the_hook_takes_over_and_out_dir_leads_to_the_run(tmp_path):
    import pathlib

    home = pathlib.Path(tdbg.__file__).resolve().parents[1]
    compat = pathlib.Path(__file__).resolve().parents[3] / "smdebug-compat" / "src"
    (tmp_path / "script.py").write_text(SCRIPT)
    env = {**os.environ, "TDBG_RUN": str(tmp_path / "run"), "TDBG_HOME": str(home), "TDBG_STRICT": "1",
           "PYTHONPATH": os.pathsep.join([str(home / "tdbg" / "boot"), str(home), str(compat)])}
    done = subprocess.run([sys.executable, "script.py"], cwd=tmp_path, env=env, text=True, capture_output=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "[0, 2, 4]" in done.stdout
    assert not (tmp_path / "run-2").exists(), "captured twice"
    assert os.path.realpath(tmp_path / "out") == str(tmp_path / "run")
    assert tdbg.open(tmp_path / "run").tensor_names() == ["gradient/Linear_bias", "gradient/Linear_weight"]
    silent = subprocess.run([sys.executable, "-c", "import torch; l = torch.nn.Linear(2, 1); o = torch.optim.SGD(l.parameters(), lr=1); "
                             "l(torch.ones(1, 2)).backward(); o.step()"], cwd=tmp_path, text=True, capture_output=True,
                            env={**env, "TDBG_RUN": str(tmp_path / "none"), "USE_SMDEBUG": "0"}, timeout=120)
    assert silent.returncode == 0 and "nothing is captured" in silent.stderr
    assert not (tmp_path / "none").exists()
