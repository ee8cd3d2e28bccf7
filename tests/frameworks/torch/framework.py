"""PyTorch in the conformance suite: a perceptron of three layers, four steps with momentum, then one evaluation."""

import torch
import torch.nn.functional as F
from frameworks.conformance.framework import STEPS, Framework, Step, Trained
from torch import nn

PARAMETERS = ("fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias")
BLOCKS = ("Net", "fc1", "relu", "fc2")
TREES = "there are no trees"


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.relu, self.fc2 = nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 2)

    def forward(self, x):
        a = self.fc1(x)
        b = self.relu(a)
        c = self.fc2(b)
        self.seen = {f"{block}_{way}_0": t.detach().clone().numpy() for block, way, t in (
            ("Net", "input", x), ("Net", "output", c), ("fc1", "input", x), ("fc1", "output", a), ("relu", "input", a),
            ("relu", "output", b), ("fc2", "input", b), ("fc2", "output", c))}
        return c


class Torch(Framework):
    title = "PyTorch"
    adaptor = "torch"
    model_class = nn.Module
    second = "same run"
    late = "step"
    late_misses = r"^(Net|fc\d|relu)_(in|out)put_0$|_labels_0$"     # modules get their names at the first step of an optimizer
    default = ("weights", "biases", "gradients", "losses")
    replaced = ((torch.Tensor, "backward"), (torch.autograd, "backward"), (F, "cross_entropy"),
                (nn.utils, "clip_grad_norm_"), (nn.utils.clip_grad, "clip_grad_norm_"))
    names = {
        "weights": ["Net_fc1.weight", "Net_fc2.weight"],
        "biases": ["Net_fc1.bias", "Net_fc2.bias"],
        "gradients": [f"gradient/Net_{p}" for p in PARAMETERS],
        "losses": ["CrossEntropyLoss_output_0"],
        "labels": ["CrossEntropyLoss_labels_0"],
        "outputs": [f"{block}_output_0" for block in BLOCKS],
        "inputs": [f"{block}_input_0" for block in BLOCKS],
        "optimizer_variables": [f"optimizer/Net_{p}/momentum_buffer" for p in PARAMETERS],
    }
    absent = {
        "metrics": "a script computes them by itself: Attached.scalar records them",
        "predictions": "the outermost module's output",
        "hyperparameters": "a script's own; the optimizer's are in the context", "feature_importance": TREES,
        "average_shap": TREES, "full_shap": TREES, "trees": TREES,
    }

    def version(self):
        return torch.__version__

    def train(self, steps=STEPS, after_step=None):
        torch.manual_seed(11)
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        recorded = []
        for n in range(steps):
            model.train()
            optimizer.zero_grad()
            x, labels = torch.randn(4, 3), torch.randint(0, 2, (4,))
            loss = F.cross_entropy(model(x), labels)
            loss.backward()
            values = {**model.seen, **weights("Net", model), **gradients("Net", model)}
            values["CrossEntropyLoss_labels_0"] = labels.numpy().copy()
            values["CrossEntropyLoss_output_0"] = loss.detach().clone().numpy()
            for name, p in model.named_parameters():
                if "momentum_buffer" in optimizer.state[p]:
                    buffer = optimizer.state[p]["momentum_buffer"]
                    values[f"optimizer/Net_{name}/momentum_buffer"] = buffer.clone().numpy()
            recorded.append(Step("TRAIN", values))
            optimizer.step()
            if after_step:
                after_step(n)
        model.eval()
        with torch.no_grad():
            x, labels = torch.randn(4, 3), torch.randint(0, 2, (4,))
            loss = F.cross_entropy(model(x), labels)
        recorded.append(Step("EVAL", {**model.seen, "CrossEntropyLoss_output_0": loss.numpy(),
                                      "CrossEntropyLoss_labels_0": labels.numpy()}))
        return Trained(recorded, result(recorded, model), weights("Net", model))

    def train_untrained(self):
        torch.manual_seed(13)
        model = nn.Sequential(nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False), nn.BatchNorm1d(3), nn.Linear(3, 2))
        model[:2].requires_grad_(False)
        optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
        found = {f"Sequential_{name}": [] for name in ("0.weight", "1.weight", "2.running_mean", "2.running_var")}
        for n in range(STEPS):
            optimizer.zero_grad()
            model(torch.randn(8, 3)).pow(2).mean().backward()
            for name, arrays in found.items():
                arrays.append(model.state_dict()[name.removeprefix("Sequential_")].detach().clone().numpy())
            optimizer.step()
            if n == 1:
                with torch.no_grad():
                    model[1].weight.add_(1)
                    model[2].running_var[1] = float("inf")
        return found

    def second_name(self, name):
        return name.replace("Net_fc", "Net_1_fc").replace("Net_input", "Net_1_input").replace("Net_output", "Net_1_output")

    def train_two(self):
        """A generator and a discriminator with an optimizer each: one step is a step of both."""
        torch.manual_seed(12)

        class Generator(nn.Sequential):
            pass

        class Discriminator(nn.Sequential):
            pass

        g, d = Generator(nn.Linear(2, 3)), Discriminator(nn.Linear(3, 1))
        optimizers = [torch.optim.SGD(m.parameters(), lr=0.1) for m in (d, g)]
        recorded = []
        for _ in range(STEPS):
            values = {}
            for model, name, optimizer in ((d, "Discriminator", optimizers[0]), (g, "Generator", optimizers[1])):
                g.zero_grad()
                d.zero_grad()
                F.binary_cross_entropy_with_logits(d(g(torch.randn(4, 2))), torch.ones(4, 1)).backward()
                values.update({**weights(name, model), **gradients(name, model)})
                optimizer.step()
            recorded.append(Step("TRAIN", values))
        return [Trained(recorded, result(recorded, g, d), {**weights("Generator", g), **weights("Discriminator", d)})]


    def train_around_a_teacher(self):
        torch.manual_seed(13)

        class Distiller(nn.Module):
            def __init__(self):
                super().__init__()
                self.student, self.teacher = nn.Linear(3, 2), nn.Linear(3, 2).eval()

        both = Distiller()
        optimizer, recorded = torch.optim.SGD(both.student.parameters(), lr=0.1), []
        for _ in range(STEPS):
            x = torch.randn(4, 3)
            out = both.student(x)
            with torch.no_grad():
                wanted = both.teacher(x)
            loss = F.mse_loss(out, wanted)
            optimizer.zero_grad()
            loss.backward()
            recorded.append(Step("TRAIN", {"MSELoss_output_0": loss.detach().clone().numpy(),
                                           "student_output_0": out.detach().clone().numpy()}))
            optimizer.step()
        return Trained(recorded, result(recorded, both))

    def train_in_turns(self):
        torch.manual_seed(14)
        critic, actor = nn.Linear(2, 1), nn.Linear(2, 1)
        optimizers, recorded = [torch.optim.SGD(m.parameters(), lr=0.1) for m in (critic, actor)], []
        for n in range(2 * STEPS):
            values = {}
            for number, (model, optimizer) in enumerate(list(zip((critic, actor), optimizers))[:1 + n % 2]):
                optimizer.zero_grad()
                loss = F.mse_loss(model(torch.randn(4, 2)), torch.ones(4, 1))
                loss.backward()
                values[f"MSELoss_output_{number}"] = loss.detach().clone().numpy()
                optimizer.step()
            recorded.append(Step("TRAIN", values))
        return Trained(recorded, result(recorded, critic, actor))


def weights(root, model):
    return {f"{root}_{name}": p.detach().clone().numpy() for name, p in model.named_parameters()}


def gradients(root, model):
    return {f"gradient/{root}_{name}": p.grad.clone().numpy() for name, p in model.named_parameters()}


def result(recorded, *models):
    tensors = [t.numpy() for model in models for t in model.state_dict().values()]
    tensors += [v for step in recorded for v in step.values.values()]
    return b"".join(t.tobytes() for t in tensors) + torch.get_rng_state().numpy().tobytes()
