"""Copies, files and scripts of a model that wears our hooks are those of a model without."""

import collections
import copy
import io
import pickle
import threading

import pytest
import torch
from torch import nn

from tdbg.adaptors.inert import is_ours
from tdbg.adaptors.torch import copies

pytestmark = pytest.mark.filterwarnings("ignore")
KINDS = ("weight", "bias", "gradient", "loss", "output", "input")


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.last = nn.Sequential(nn.Linear(4, 3), nn.ReLU()), nn.Linear(3, 2)

    def forward(self, x):
        return self.last(self.inner(x))


class Sequence(nn.LSTM):
    """A class with a __getstate__ that does not ask Module's."""


class Slotted(Net):
    """A class with a state as Python makes it of one with slots."""
    __slots__ = ("beside",)

    def __init__(self):
        super().__init__()
        self.beside = 5

    def __getstate__(self):
        return self.__dict__, {"beside": self.beside}

    def __setstate__(self, state):
        self.__dict__.update(state[0])
        self.beside = state[1]["beside"]


def train(model):
    x = torch.ones(2, 1, 4) if isinstance(model, nn.LSTM) else torch.ones(2, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        out = model(x)
        (out[0] if isinstance(out, tuple) else out).sum().backward()
        optimizer.step()
    return model


def hooks_of(model):
    return [hook for m in model.modules() for hooks in (m._forward_hooks, m._forward_pre_hooks) for hook in hooks.values()]


def beside_of(model):
    return [len(m.__dict__[name]) for m in model.modules()
            for name in ("_forward_hooks_with_kwargs", "_forward_hooks_always_called", "_forward_pre_hooks_with_kwargs")]


@pytest.mark.parametrize("kind", [Net, Sequence, Slotted])
@pytest.mark.parametrize("how", ["deepcopy", *range(pickle.HIGHEST_PROTOCOL + 1)])
def test_a_copy_has_no_hook(watch, kind, how):
    watch(kinds=KINDS)
    model = train(kind() if kind is not Sequence else kind(4, 3))
    before, worn = hooks_of(model), beside_of(model)
    assert all(map(is_ours, before)) and len(before) > 2
    twin = copy.deepcopy(model) if how == "deepcopy" else pickle.loads(pickle.dumps(model, protocol=how))
    assert hooks_of(twin) == [] and not any(beside_of(twin))
    assert hooks_of(model) == before and beside_of(model) == worn, "the model keeps them"
    assert kind is not Slotted or twin.beside == 5


def test_a_model_that_is_saved_whole_is_loaded_by_who_trusts_its_classes_alone(watch):
    watch(kinds=KINDS)
    model, file = train(Net()), io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    with torch.serialization.safe_globals([Net, nn.Sequential, nn.Linear, nn.ReLU, set, collections.OrderedDict]):
        loaded = torch.load(file, weights_only=True)
    assert torch.equal(loaded(torch.ones(1, 4)), model(torch.ones(1, 4)))


def test_the_scripts_own_hooks_are_in_a_copy_with_their_handles(watch):
    watch(kinds=KINDS)
    model = Net()
    model.handle = model.last.register_forward_hook(_twice, with_kwargs=True)
    train(model)
    twin = copy.deepcopy(model)
    x = torch.ones(1, 4)
    assert torch.equal(twin(x), model(x)) and _twice in twin.last._forward_hooks.values()
    twin.handle.remove()
    assert torch.equal(2 * twin(x), model(x))


def _twice(module, args, kwargs, output):
    return 2 * output


def test_a_shallow_copy_shares_what_it_shares(watch):
    watch(kinds=KINDS)
    model = train(Net())
    twin = copy.copy(model)
    assert all(twin.__dict__[name] is hooks for name, hooks in model.__dict__.items() if "hooks" in name)


def test_pickling_of_a_class_that_comes_after_module_is_its_own(watch):
    class Own:
        def __reduce_ex__(self, protocol):
            return Net, ()

    class Mixed(Net, Own):
        pass

    watch(kinds=KINDS)
    assert type(copy.deepcopy(train(Mixed()))) is Net


def test_a_model_and_its_copies_are_scripted(watch):
    watch(kinds=KINDS)
    model = train(Net())
    averaged = torch.optim.swa_utils.AveragedModel(model)
    worn = hooks_of(model)
    scripts = [torch.jit.script(m) for m in (model, copy.deepcopy(model), averaged.module, model)]
    assert hooks_of(model) == worn
    x = torch.ones(1, 4)
    assert all(torch.equal(s(x), model(x)) for s in scripts)
    assert len({s._c._type().str() for s in scripts}) == 1, "types are shared as without hooks"
    graph = train(torch.fx.symbolic_trace(Net()))            # copied by its own code, inert hooks and all
    assert torch.equal(torch.jit.script(copy.deepcopy(graph))(x), graph(x))


def test_hooks_that_torchscript_knows_are_compiled(watch):
    watch(kinds=KINDS)
    model = Net()
    model.last.register_forward_hook(_negated)
    train(model)
    x = torch.ones(1, 4)
    assert torch.equal(torch.jit.script(model)(x), model(x))
    assert [h for h in model.last._forward_hooks.values()][0] is _negated, "and are called first still"


def _negated(self, input: tuple[torch.Tensor], output: torch.Tensor):
    return -output


def test_threads_may_script_one_model_at_once(watch):
    watch(kinds=KINDS)
    model = train(Net())
    worn, inside, done = hooks_of(model), threading.Barrier(2, timeout=60), []

    def look():
        with copies._hidden(model):
            inside.wait()
            done.append(list(model._forward_hooks.values()))
            inside.wait()
            if threading.current_thread() is threads[0]:
                return
            threads[0].join()
            done.append(list(model._forward_hooks.values()))

    threads = [threading.Thread(target=look) for _ in range(2)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert done == [[]] * 3 and hooks_of(model) == worn and not copies._unseen


def test_an_lstm_that_was_compiled_in_place_is_copied(watch):
    watch()
    model = nn.LSTM(4, 3)
    model.compile(backend="eager")
    train(model)
    x = torch.ones(2, 1, 4)
    assert torch.equal(copy.deepcopy(model)(x)[0], model(x)[0])


def test_nothing_stays_replaced(watch):
    looks = torch.jit._recursive.get_hook_stubs
    first, second = watch(), watch()
    first.finish("completed")
    assert "__reduce_ex__" in nn.Module.__dict__, "the other still has hooks"
    model = train(Net())
    second.finish("completed")
    assert "__reduce_ex__" not in nn.Module.__dict__ and torch.jit._recursive.get_hook_stubs is looks
    assert hooks_of(copy.deepcopy(model)) == hooks_of(model) == []


def test_a_model_is_traced_by_torchscript(watch):
    """It traces twice and compares, down to the names of the variables that a value was seen in."""
    watch(kinds=KINDS)
    model = Net()
    train(model.inner)
    x = torch.ones(1, 4)
    assert torch.equal(torch.jit.trace(model.eval(), x)(x), model(x))
    whole = Net()
    torch.optim.SGD(whole.parameters(), lr=0.1)
    assert torch.equal(torch.jit.trace(whole, x)(x), whole(x))
