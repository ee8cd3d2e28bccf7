"""Hugging Face's Trainer and Lightning in the conformance suite: a perceptron of three layers under each one's own loop."""

import logging
import os
import tempfile

import torch
import torch.nn.functional as F
from frameworks.conformance.framework import STEPS, Framework, Step, Trained
from torch import nn

os.environ["HF_HUB_OFFLINE"] = "1"            # nothing is downloaded here
torch.set_num_threads(1)

import lightning  # noqa: E402
import transformers  # noqa: E402

for name in ("lightning.pytorch", "transformers"):
    logging.getLogger(name).setLevel(logging.ERROR)

PARAMETERS = ("fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias")
TREES = "there are no trees"


class Layers:
    """What both models compute; `seen` has what went through the layers."""

    def compute(self, x):
        a = self.fc1(x)
        b = self.relu(a)
        c = self.fc2(b)
        self.seen = {f"{block}_{way}_0": copy(t) for block, way, t in (
            ("fc1", "input", x), ("fc1", "output", a), ("relu", "input", a), ("relu", "output", b), ("fc2", "input", b),
            ("fc2", "output", c))}
        return c


def copy(tensor):
    return tensor.detach().clone().numpy()


def weights(root, model):
    return {f"{root}_{name}": copy(p) for name, p in model.named_parameters()}


def before_update(root, model, optimizer):
    """Weights, gradients and momentum, as they are just before the optimizer's update."""
    values = {**weights(root, model), **{f"gradient/{root}_{n}": copy(p.grad) for n, p in model.named_parameters()}}
    for n, p in model.named_parameters():
        if "momentum_buffer" in optimizer.state[p]:
            values[f"optimizer/{root}_{n}/momentum_buffer"] = copy(optimizer.state[p]["momentum_buffer"])
    return values


def result(steps, *models):
    tensors = [t.numpy() for model in models for t in model.state_dict().values()]
    tensors += [v for step in steps for v in step.values.values()]
    return b"".join(t.tobytes() for t in tensors) + torch.get_rng_state().numpy().tobytes()


class Partly:
    """Layers of which two are frozen, and running averages; `found` has what each step should find."""

    def make(self):
        self.still, self.moved = nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False)
        self.norm, self.head = nn.BatchNorm1d(3), nn.Linear(3, 2)
        self.still.requires_grad_(False)
        self.moved.requires_grad_(False)
        self.found = {f"Net_{name}": [] for name in ("still.weight", "moved.weight", "norm.running_mean", "norm.running_var")}

    def loss(self, x):
        return self.head(self.norm(self.moved(self.still(x)))).pow(2).mean()

    def find(self):
        for name, arrays in self.found.items():
            arrays.append(copy(self.state_dict()[name.removeprefix("Net_")]))

    def change(self):
        with torch.no_grad():
            self.moved.weight.add_(1)
            self.norm.running_var[1] = float("inf")


class _Torch(Framework):
    adaptor = "torch"
    model_class = nn.Module
    second = "same run"
    late = "step"
    default = ("weights", "biases", "gradients", "losses")
    replaced = ((torch.Tensor, "backward"), (torch.autograd, "backward"), (F, "cross_entropy"))
    absent = {
        "metrics": "reported to the framework's own loggers",
        "predictions": "the outermost module's output", "hyperparameters": "a script's own; the optimizer's are in the context",
        "feature_importance": TREES, "average_shap": TREES, "full_shap": TREES, "trees": TREES,
    }

    def second_name(self, name):
        return name.replace("Net_", "Net_1_")


def names(outputs, inputs):
    return {
        "weights": ["Net_fc1.weight", "Net_fc2.weight"],
        "biases": ["Net_fc1.bias", "Net_fc2.bias"],
        "gradients": [f"gradient/Net_{p}" for p in PARAMETERS],
        "losses": ["CrossEntropyLoss_output_0"],
        "labels": ["CrossEntropyLoss_labels_0"],
        "outputs": [f"{block}_output_0" for block in ("fc1", "relu", "fc2")] + outputs,
        "inputs": [f"{block}_input_0" for block in ("fc1", "relu", "fc2")] + inputs,
        "optimizer_variables": [f"optimizer/Net_{p}/momentum_buffer" for p in PARAMETERS],
    }


class HfTrainer(_Torch):
    title = "Hugging Face Trainer"
    late_misses = r"^(Net|fc\d|relu)_(in|out)put_\d$|_labels_0$"   # modules get their names at the first step of an optimizer
    names = names(["Net_output_0", "Net_output_1"], ["Net_input_0", "Net_input_1"])

    def version(self):
        return transformers.__version__

    def model(self):
        class Net(Layers, nn.Module):
            def __init__(self):
                super().__init__()
                self.fc1, self.relu, self.fc2 = nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 2)

            def forward(self, x, labels):
                logits = self.compute(x)
                loss = F.cross_entropy(logits, labels)
                self.seen.update(Net_input_0=copy(x), Net_input_1=copy(labels), Net_output_0=copy(loss), Net_output_1=copy(logits),
                                 CrossEntropyLoss_output_0=copy(loss), CrossEntropyLoss_labels_0=copy(labels))
                return {"loss": loss, "logits": logits}

        return Net()

    def train(self, steps=STEPS, after_step=None, model=None):
        transformers.set_seed(11)
        model, recorded = model or self.model(), []
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

        class Watching(transformers.TrainerCallback):
            def on_pre_optimizer_step(self, arguments, state, control, **others):
                recorded.append(Step("TRAIN", {**model.seen, **before_update("Net", model, optimizer)}))

            def on_step_end(self, arguments, state, control, **others):
                if after_step:
                    after_step(state.global_step - 1)

        data = [{"x": x, "labels": y} for x, y in zip(torch.randn(16, 3), torch.randint(0, 2, (16,)))]
        with tempfile.TemporaryDirectory() as folder:
            trainer = transformers.Trainer(
                model=model, train_dataset=data, eval_dataset=data[:4], callbacks=[Watching()],
                optimizers=(optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: 1.0)),
                args=transformers.TrainingArguments(
                    output_dir=folder, max_steps=steps, per_device_train_batch_size=4, per_device_eval_batch_size=4,
                    report_to=[], save_strategy="no", logging_strategy="no", use_cpu=True, disable_tqdm=True, seed=11))
            trainer.train()
            trainer.evaluate()
        recorded.append(Step("EVAL", dict(model.seen)))
        return Trained(recorded, result(recorded, model), weights("Net", model))

    def train_untrained(self):
        class Net(Partly, nn.Module):
            def __init__(self):
                super().__init__()
                self.make()

            def forward(self, x):
                return {"loss": self.loss(x)}

        class Watching(transformers.TrainerCallback):
            def on_pre_optimizer_step(self, arguments, state, control, **others):
                model.find()

            def on_step_end(self, arguments, state, control, **others):
                if state.global_step == 2:
                    model.change()

        transformers.set_seed(13)
        model = Net()
        with tempfile.TemporaryDirectory() as folder:
            transformers.Trainer(
                model=model, train_dataset=[{"x": x} for x in torch.randn(16, 3)], callbacks=[Watching()],
                args=transformers.TrainingArguments(
                    output_dir=folder, max_steps=STEPS, per_device_train_batch_size=4, report_to=[], save_strategy="no",
                    logging_strategy="no", use_cpu=True, disable_tqdm=True, seed=13, remove_unused_columns=False)).train()
        return model.found

    def train_two(self):
        """A student and its teacher, which nobody trains: the steps are the student's."""
        torch.manual_seed(12)
        teacher = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2)).eval()
        student = self.model()
        inner = student.forward

        def forward(x, labels):
            with torch.no_grad():
                teacher(x)
            return inner(x, labels)

        student.forward = forward
        return [self.train(model=student)]


class Lightning(_Torch):
    title = "Lightning"
    names = names(["Net_output_0"], ["Net_input_0"])

    def version(self):
        return lightning.__version__

    def train(self, steps=STEPS, after_step=None):
        torch.manual_seed(11)
        recorded = []

        class Net(Layers, lightning.LightningModule):
            def __init__(self):
                super().__init__()
                self.fc1, self.relu, self.fc2 = nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 2)

            def forward(self, x):
                c = self.compute(x)
                self.seen.update(Net_input_0=copy(x), Net_output_0=copy(c))
                return c

            def training_step(self, batch, index):
                loss = F.cross_entropy(self(batch[0]), batch[1])
                self.seen.update(CrossEntropyLoss_output_0=copy(loss), CrossEntropyLoss_labels_0=copy(batch[1]))
                return loss

            validation_step = training_step

            def on_before_optimizer_step(self, optimizer):
                recorded.append(Step("TRAIN", {**self.seen, **before_update("Net", self, optimizer)}))

            def on_train_batch_end(self, outputs, batch, index):
                if after_step:
                    after_step(index)

            def on_validation_batch_end(self, outputs, batch, index):
                recorded.append(Step("EVAL", dict(self.seen)))

            def configure_optimizers(self):
                return torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)

        model = Net()
        trainer = quiet_trainer()
        trainer.fit(model, batches(steps))
        trainer.validate(model, batches(1), verbose=False)
        return Trained(recorded, result(recorded, model), weights("Net", model))

    def train_untrained(self):
        class Net(Partly, lightning.LightningModule):
            def __init__(self):
                super().__init__()
                self.make()

            def training_step(self, batch, index):
                return self.loss(batch[0])

            def on_before_optimizer_step(self, optimizer):
                self.find()

            def on_train_batch_end(self, outputs, batch, index):
                if index == 1:
                    self.change()

            def configure_optimizers(self):
                return torch.optim.AdamW(self.parameters(), lr=0.1)       # of the frozen ones, too

        torch.manual_seed(13)
        model = Net()
        quiet_trainer().fit(model, batches(STEPS))
        return model.found

    def train_two(self):
        """A generator and a discriminator, stepped by hand: one step is a step of both."""
        torch.manual_seed(12)
        recorded = []

        class Net(lightning.LightningModule):
            def __init__(self):
                super().__init__()
                self.automatic_optimization = False
                self.critic, self.generator = nn.Linear(3, 1), nn.Linear(2, 3)

            def training_step(self, batch, index):
                values = {}
                for part, optimizer in zip(("critic", "generator"), self.optimizers()):
                    self.zero_grad()
                    made = self.critic(self.generator(batch[0][:, :2]))
                    self.manual_backward(F.binary_cross_entropy_with_logits(made, torch.ones(4, 1)))
                    values.update((name, value) for name, value in before_update("Net", self, optimizer.optimizer).items()
                                  if f"Net_{part}." in name)
                    optimizer.step()
                recorded.append(Step("TRAIN", values))

            def configure_optimizers(self):
                return [torch.optim.SGD(part.parameters(), lr=0.1) for part in (self.critic, self.generator)]

        model = Net()
        quiet_trainer().fit(model, batches(STEPS))
        return [Trained(recorded, result(recorded, model), weights("Net", model))]


def quiet_trainer():
    return lightning.Trainer(
        max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False)


def batches(count):
    random = torch.Generator().manual_seed(3)
    data = torch.utils.data.TensorDataset(torch.randn(4 * count, 3, generator=random),
                                          torch.randint(0, 2, (4 * count,), generator=random))
    return torch.utils.data.DataLoader(data, batch_size=4)
