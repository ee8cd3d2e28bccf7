"""Compiled functions: the training's own program is what it is, whatever is watched."""

import functools
import gc
import threading

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import tdbg
from tdbg.adaptors.optax import session


def elementwise(p, x):
    return jnp.sum(p["w"] * p["v"] * x.mean(0) + jnp.sin(p["w"]) * p["v"])


def norm(p, x):
    h = x @ p["kernel"]
    h = (h - h.mean(-1, keepdims=True)) * jax.lax.rsqrt(h.var(-1, keepdims=True) + 1e-5) * p["w"] + p["v"]
    return jnp.mean(h ** 2) + sum(jnp.sum(w ** 2) for w in jax.tree.leaves(p)) * 1e-3


def parameters():
    return {"w": normal(16), "v": normal(16) + 1, "kernel": normal(16, 16)}


def normal(*shape):
    return jax.random.normal(jax.random.fold_in(jax.random.key(0), len(shape) * 100 + sum(shape)), shape)


def train(loss, optimizer, loop="jit", steps=20):
    """The parameters after each step (of a scan: after all of them)."""
    x = normal(8, 16)

    def step(p, state, scale):
        gradients = jax.value_and_grad(loss)(p, x * scale)[1]
        updates, state = optimizer.update(gradients, state, p)
        return optax.apply_updates(p, updates), state

    p = parameters()
    state, scales, seen = optimizer.init(p), 1 + jnp.arange(steps) / 10, []
    if loop == "scan":
        whole = jax.jit(lambda p, state: jax.lax.scan(lambda c, s: (step(*c, s), None), (p, state), scales)[0])
        return [jax.tree.map(np.array, whole(p, state)[0])]
    compiled = {"jit": jax.jit(step), "eager": step, "donated": jax.jit(step, donate_argnums=(0, 1))}[loop]
    for scale in scales:
        p, state = compiled(p, state, scale)
        seen.append(jax.tree.map(np.array, p))
    return seen


def same(a, b):
    return all(x.tobytes() == y.tobytes() for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True))


@pytest.mark.parametrize("loop", ["jit", "scan", "donated", "eager"])
@pytest.mark.parametrize("loss", [elementwise, norm])
@pytest.mark.parametrize("optimizer", [optax.adamw(1e-2), optax.lion(1e-3)], ids=["adamw", "lion"])
def test_the_last_bits_are_those_of_the_training_alone(tmp_path, loss, optimizer, loop):
    bare = train(loss, optimizer, loop)
    with tdbg.attach(framework="optax", dir=str(tmp_path / "run"), config={"rules": []}):
        watched = train(loss, optimizer, loop)
    assert same(bare, watched)
    trial = tdbg.open(str(tmp_path / "run"))
    assert trial.steps() == list(range(20)) and trial["gradient/w"].steps() == trial.steps()
    if loop != "scan":
        for step in range(1, 20):
            assert trial["w"].summary(step).max == np.float64(bare[step - 1]["w"].max())


def test_steps_in_which_nothing_is_due_are_counted_and_run_once(tmp_path):
    with tdbg.attach(framework="optax", dir=str(tmp_path / "run"), config={"rules": [], "summaries": {"every": 3}}) as run:
        train(norm, optax.sgd(0.1), steps=8)
        assert run.global_step == 7
    assert tdbg.open(str(tmp_path / "run"))["w"].steps() == [0, 3, 6]


def test_a_compiled_function_inside_another(tmp_path):
    optimizer = optax.sgd(0.1)
    with tdbg.attach(framework="optax", dir=str(tmp_path / "run"), config={"rules": []}):
        @jax.jit
        def inner(p):
            gradients = jax.grad(lambda p: jnp.sum(p["w"] ** 2))(p)
            return optax.apply_updates(p, optimizer.update(gradients, optimizer.init(p))[0])

        p = inner({"w": jnp.ones(3)})
        jax.block_until_ready(jax.jit(lambda p: inner(inner(p)))(p))
    trial = tdbg.open(str(tmp_path / "run"))
    assert [round(trial["w"].summary(step).max, 4) for step in trial.steps()] == [1, 0.8, 0.64]


def test_what_jit_returns_is_what_it_was(tmp_path):
    with tdbg.attach(framework="optax", dir=str(tmp_path / "run"), config={"rules": []}):
        class Model:
            @functools.partial(jax.jit, static_argnums=0)
            def twice(self, x):
                return 2 * x

        @jax.jit
        def f(x, y=1):
            "what it does"
            return x + y

        assert Model().twice(3) == 6 and f(1, y=2) == 3 and f.__name__ == "f" and f.__doc__ == "what it does"
        assert f.lower(1.0).compile()(1.0) == 2
        assert jax.vmap(f)(jnp.arange(3)).tolist() == [1, 2, 3] and jax.grad(f)(1.0) == 1.0
        assert f._cache_size() >= 1


def test_updates_that_nothing_can_be_seen_of_are_said(tmp_path, capfd):
    step = jax.jit(lambda p: optax.apply_updates(p, {"w": -p["w"]}))     # given to jax.jit before
    with tdbg.attach(framework="optax", dir=str(tmp_path / "run"), config={"rules": []}):
        step({"w": jnp.ones(3)})
    assert "not captured" in capfd.readouterr().err


def test_weights_of_trainings_that_are_gone_have_a_bound(tmp_path, monkeypatch):
    def update_once():
        optimizer, p = optax.sgd(0.1), {"w": jnp.ones(3)}
        optax.apply_updates(p, optimizer.update({"w": jnp.ones(3)}, optimizer.init(p), p)[0])

    monkeypatch.setattr(session, "KEPT_BYTES", 0)
    with tdbg.attach(framework="optax", dir=str(tmp_path / "run"), config={"rules": []}) as run:
        for _ in range(3):
            update_once()
            gc.collect()
        assert len(run._session._final) == 1


def test_threads_that_train_at_once_have_gradients_of_their_own(tmp_path):
    computed, applied = threading.Event(), threading.Event()
    one, two = optax.sgd(0.1), optax.sgd(0.1)

    def other():
        p = {"other": jnp.ones(2)}
        updates, _ = two.update({"other": jnp.full(2, 3.0)}, two.init(p), p)
        computed.set()
        assert applied.wait(60)
        optax.apply_updates(p, updates)

    with tdbg.attach(framework="optax", dir=str(tmp_path / "run"), config={"rules": []}):
        thread = threading.Thread(target=other)
        thread.start()
        try:
            assert computed.wait(60)
            p = {"own": jnp.ones(3)}
            optax.apply_updates(p, one.update({"own": jnp.full(3, 5.0)}, one.init(p), p)[0])
        finally:
            applied.set()
            thread.join()
    trial = tdbg.open(str(tmp_path / "run"))
    assert [trial[name].summary(0).max for name in ("gradient/own", "gradient/other")] == [5.0, 3.0]
