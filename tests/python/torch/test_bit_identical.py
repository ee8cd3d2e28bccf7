"""Training attached is training not attached, to the last bit: losses, weights and the random numbers after it."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

STEPS = 200
ALL = ("weight", "bias", "gradient", "loss", "output", "input", "optimizer")


class Cnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3)
        self.norm = nn.BatchNorm2d(4)
        self.relu = nn.ReLU(inplace=True)
        self.drop = nn.Dropout(0.3)
        self.fc = nn.Linear(4 * 36, 10)

    def forward(self, x):
        return self.fc(self.drop(self.relu(self.norm(self.conv(x)))).flatten(1))


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(16, 8)
        self.layers = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(8, 2, 16, dropout=0.1, batch_first=True), 2, enable_nested_tensor=False)
        self.head = nn.Linear(8, 16, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, x):
        return self.head(self.layers(self.embed(x)))


def cnn(losses):
    model = Cnn()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 50, 0.5)
    for n in range(STEPS):
        model.train()
        optimizer.zero_grad()
        loss = F.cross_entropy(model(torch.randn(8, 1, 8, 8)), torch.randint(0, 10, (8,)))
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        losses.append(loss.detach())
        if n % 50 == 49:
            model.eval()
            with torch.no_grad():
                losses.append(F.cross_entropy(model(torch.randn(8, 1, 8, 8)), torch.randint(0, 10, (8,))))
    return [model]


def transformer(losses):
    model = Transformer()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(STEPS):
        optimizer.zero_grad(set_to_none=False)
        for _ in range(2):
            tokens = torch.randint(0, 16, (4, 6))
            loss = F.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten()) / 2
            loss.backward()
            losses.append(loss.detach().clone())
        optimizer.step()
    return [model]


def gan(losses):
    d, g = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1)), nn.Sequential(nn.Linear(2, 4))
    od, og = torch.optim.Adam(d.parameters()), torch.optim.RMSprop(g.parameters())
    bce = nn.BCEWithLogitsLoss()
    for _ in range(STEPS):
        od.zero_grad()
        bce(d(torch.randn(6, 4)), torch.ones(6, 1)).backward()
        fake = g(torch.randn(6, 2))
        bce(d(fake.detach()), torch.zeros(6, 1)).backward()
        od.step()
        og.zero_grad()
        loss = bce(d(fake), torch.ones(6, 1))
        loss.backward()
        og.step()
        losses.append(loss.detach())
    return [d, g]


def mixed_precision(losses):
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0 ** 14, growth_interval=20)
    for n in range(STEPS):
        optimizer.zero_grad()
        x = torch.randn(5, 8)
        if n % 40 == 17:
            x[0, 0] = float("inf")
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = F.mse_loss(model(x), torch.zeros(5, 4))
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_value_(model.parameters(), 0.5)
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.detach())
    return [model]


def lbfgs(losses):
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=4)
    x = torch.randn(16, 4)
    for _ in range(STEPS // 4):
        def closure():
            optimizer.zero_grad()
            loss = F.smooth_l1_loss(model(x), x.sum(1, keepdim=True))
            loss.backward()
            return loss
        losses.append(optimizer.step(closure).detach())
    return [model]


def run(training):
    torch.manual_seed(3)
    losses = []
    models = training(losses)
    weights = [t.clone() for m in models for t in m.state_dict().values()]
    return losses, weights, torch.get_rng_state()


@pytest.mark.parametrize("lane", [False, True])
@pytest.mark.parametrize("training", [cnn, transformer, gan, mixed_precision, lbfgs])
def test_bit_identical(watch, training, lane):
    bare = run(training)
    session = watch(kinds=ALL, force_lane=lane, plan={"collections": [{"name": "gradients_before_clip", "keep": True}]})
    attached = run(training)
    session.finish("completed")
    recorded = session.made[0]
    assert len(recorded.train) >= STEPS // 4 and recorded.lost == [], "it was watched"
    for mine, theirs in zip(bare, attached):
        mine, theirs = ([x] if isinstance(x, torch.Tensor) else x for x in (mine, theirs))
        assert len(mine) == len(theirs)
        for a, b in zip(mine, theirs):
            # Bytes and not values: a NaN from the infinite batch is equal to itself here.
            assert a.contiguous().reshape(-1).view(torch.uint8).equal(b.contiguous().reshape(-1).view(torch.uint8))


def test_what_was_recorded_is_what_was_trained(watch):
    session = watch()
    losses, weights, _ = run(cnn)
    session.finish("completed")
    recorded = session.made[0]
    assert [len(recorded.train), len(recorded.eval)] == [STEPS, STEPS // 50]
    train = [float(v) for n, v in enumerate(losses) if n % 51 != 50]
    assert [float(s["CrossEntropyLoss_output_0"]) for s in recorded.train] == train
    evaluated = [float(v) for n, v in enumerate(losses) if n % 51 == 50]
    assert [float(s["CrossEntropyLoss_output_0"]) for s in recorded.eval] == evaluated
    assert (recorded.end_values["Cnn_conv.weight", 0, 0] == weights[0].numpy()).all()
