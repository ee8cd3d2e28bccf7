"""JAX in the conformance suite: a perceptron of flax.nnx, four steps of Adam in a function that is compiled."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from frameworks.conformance.framework import STEPS, Framework, Step, Trained

PARAMETERS = ("fc1/bias", "fc1/kernel", "fc2/bias", "fc2/kernel")
TREES = "there are no trees"
PURE = "a function's values are its own: there is no object to be asked for them"


class Net(nnx.Module):
    def __init__(self, rngs, width=5):
        self.fc1, self.fc2 = nnx.Linear(3, width, rngs=rngs), nnx.Linear(width, 2, rngs=rngs)

    def __call__(self, x):
        return self.fc2(nnx.relu(self.fc1(x)))


def flat(state, prefix="", form="{}"):
    """The arrays of a tree of parameters, copied, under the adaptor's names."""
    found = {}
    for path, leaf in jax.tree_util.tree_flatten_with_path(nnx.as_pure(state))[0]:
        name = "/".join(str(getattr(p, "key", getattr(p, "name", p))) for p in path)
        found[form.format(prefix + name)] = np.array(leaf)
    return found


class Training:
    def __init__(self, seed, optimizer):
        self.model = Net(nnx.Rngs(seed))
        self.optimizer = nnx.Optimizer(self.model, optimizer, wrt=nnx.Param)

        @nnx.jit
        def step(model, optimizer, x, y):
            def loss_of(model):
                return optax.softmax_cross_entropy_with_integer_labels(model(x), y).mean()
            loss, gradients = nnx.value_and_grad(loss_of)(model)
            optimizer.update(model, gradients)
            return loss, gradients
        self.compiled = step

    def weights(self, prefix=""):
        return flat(nnx.state(self.model, nnx.Param), prefix)

    def step(self, n, prefix="", loss_name="loss_0"):
        """One step; what it had, under the adaptor's names."""
        key = jax.random.key(n)
        x, y = jax.random.normal(key, (4, 3)), jax.random.randint(key, (4,), 0, 2)
        values = self.weights(prefix)
        for state in jax.tree.leaves(nnx.as_pure(self.optimizer.opt_state), is_leaf=lambda s: hasattr(s, "mu")):
            for slot in ("mu", "nu") if hasattr(state, "mu") else ():
                values.update(flat(getattr(state, slot), prefix, "optimizer/{}/" + slot))
        loss, gradients = self.compiled(self.model, self.optimizer, x, y)
        return {**values, **flat(gradients, prefix, "gradient/{}"), loss_name: np.array(loss)}


class Optax(Framework):
    title = "JAX with optax"
    adaptor = "optax"
    model_class = nnx.Module
    second = "same run"
    late = "training"           # what is compiled already is left as it is
    default = ("weights", "biases", "gradients", "losses")
    replaced = ((jax, "jit"), (jax, "value_and_grad"), (optax, "apply_updates"))
    names = {
        "weights": [n for n in PARAMETERS if "kernel" in n], "biases": [n for n in PARAMETERS if "bias" in n],
        "gradients": [f"gradient/{n}" for n in PARAMETERS], "losses": ["loss_0"],
        "optimizer_variables": [f"optimizer/{n}/{slot}" for n in PARAMETERS for slot in ("mu", "nu")],
    }
    absent = {
        "metrics": "a script computes them by itself: Attached.scalar records them", "outputs": PURE, "inputs": PURE, "labels": PURE,
        "predictions": PURE, "hyperparameters": "constants of a compiled function", "feature_importance": TREES,
        "average_shap": TREES, "full_shap": TREES, "trees": TREES,
        "forked children": "XLA's threads are not there in a forked child, also without us",
    }

    def version(self):
        return f"{jax.__version__}, optax {optax.__version__}"

    def train(self, steps=STEPS, after_step=None):
        training, recorded = Training(3, optax.adam(0.01)), []
        for n in range(steps):
            recorded.append(Step("TRAIN", training.step(n)))
            if after_step:
                after_step(n)
        return Trained(recorded, result(recorded, training), training.weights())

    def second_name(self, name):
        for head in ("gradient/", "optimizer/"):
            if name.startswith(head):
                return f"{head}1/{name.removeprefix(head)}"
        return "loss_1" if name == "loss_0" else f"1/{name}"

    def train_two(self):
        """Two models, updated in turns: one step is a step of both."""
        pair, recorded = [Training(4, optax.adam(0.01)), Training(5, optax.adam(0.02))], []
        for n in range(STEPS):
            values = pair[0].step(n)
            values.update(pair[1].step(n, "1/", "loss_1"))
            recorded.append(Step("TRAIN", values))
        return [Trained(recorded, result(recorded, *pair), {**pair[0].weights(), **pair[1].weights("1/")})]


def result(recorded, *trainings):
    arrays = [v for t in trainings for v in t.weights().values()] + [v for s in recorded for v in s.values.values()]
    return b"".join(np.asarray(a).tobytes() for a in arrays) + np.asarray(jnp.zeros(1)).tobytes()
