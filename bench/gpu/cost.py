#!/usr/bin/env python3
"""What being watched costs a step on a GPU, beside what people do instead: ratios to the same training without anything.

    bench/gpu/cost.py MODEL [--variants A,B] [--rounds 6] [--seconds 1] [--device cuda] [--json]
    MODEL: tiny, cnn, tensors1200, gpt124_fp32, gpt124_bf16, gpt1b

Variants take turns in one process, block by block, so that what the machine does meanwhile happens to all of them; `bare` is there
twice, and the distance between the two is what no ratio can be nearer than. A block is synchronised at its ends. Printed are the
median of the blocks' times, its ratio to bare's, and what the run has dropped.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import shutil
import statistics
import sys
import tempfile
import time

import torch
import torch.nn.functional as F
from torch import nn


class Cnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 20, 5), nn.Conv2d(20, 50, 5)
        self.fc1, self.fc2 = nn.Linear(800, 500), nn.Linear(500, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        return self.fc2(F.relu(self.fc1(x.flatten(1))))


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.qkv, self.out = heads, nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        b, t, w = x.shape
        q, k, v = (p.view(b, t, self.heads, w // self.heads).transpose(1, 2) for p in self.qkv(x).chunk(3, -1))
        return self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, w))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.norm1, self.attention = nn.LayerNorm(width), Attention(width, heads)
        self.norm2, self.mlp = nn.LayerNorm(width), nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Gpt(nn.Module):
    def __init__(self, layers, width, heads, words, length):
        super().__init__()
        self.length = length
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
        self.blocks, self.norm = nn.ModuleList(Block(width, heads) for _ in range(layers)), nn.LayerNorm(width)
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)

    def forward(self, x):
        h = self.words(x) + self.places.weight[:x.shape[1]]
        for block in self.blocks:
            h = block(h)
        return F.linear(self.norm(h), self.words.weight)


#: layers, width, heads, words, length, batch, parameters' type, autocast
GPTS = {"tiny": (2, 64, 2, 512, 64, 4, torch.float32, None), "gpt124_fp32": (12, 768, 12, 50257, 1024, 8, torch.float32, None),
        "gpt124_bf16": (12, 768, 12, 50257, 1024, 24, torch.float32, torch.bfloat16),
        "gpt1b": (24, 1792, 14, 50304, 1024, 16, torch.bfloat16, None)}


class Training:
    def __init__(self, name, device):
        torch.manual_seed(0)
        self.count, self.before_update = 0, []
        if name in GPTS:
            layers, width, heads, words, length, size, dtype, amp = GPTS[name]
            self.model = Gpt(layers, width, heads, words, length).to(device, dtype)
            data = [torch.randint(0, words, (size, length), device=device) for _ in range(4)]
            self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-5, fused=device == "cuda")

            def loss(n):
                with torch.autocast(device, dtype=amp, enabled=amp is not None):
                    out = self.model(data[n % 4])
                    return F.cross_entropy(out.flatten(0, 1).float(), data[n % 4].roll(-1, 1).flatten())
        elif name == "cnn":
            self.model = Cnn().to(device)
            data = [torch.randn(64, 1, 28, 28, device=device) for _ in range(4)]
            labels = torch.arange(64, device=device) % 10
            self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-4, momentum=0.9)

            def loss(n):
                return F.cross_entropy(self.model(data[n % 4]), labels)
        else:
            self.model = nn.Sequential(*(nn.Linear(31, 31) for _ in range(600))).to(device)
            data = [torch.randn(64, 31, device=device) for _ in range(4)]
            self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-4, momentum=0.9)

            def loss(n):
                return self.model(data[n % 4]).square().mean()
        self._loss = loss
        self.parameters = list(self.model.parameters())

    def step(self):
        self.optimizer.zero_grad()
        loss = self._loss(self.count)
        loss.backward()
        for look in self.before_update:
            look()
        self.optimizer.step()
        self.count += 1


# What people do instead: each is called when all gradients are there.

def norms(training):
    """Norms of all gradients, in one call; nothing of it reaches the host."""
    kept = []
    return lambda: kept.__setitem__(slice(None), torch._foreach_norm([p.grad for p in training.parameters]))


def by_hand(training):
    """Mean, deviation, largest magnitude and norm of weights and gradients; one copy for all of them."""
    kept = []

    def look():
        rows = []
        for p in training.parameters:
            for t in (p.detach(), p.grad):
                t = t.float()
                rows.append(torch.stack([t.mean(), t.std(), t.abs().max(), torch.linalg.vector_norm(t)]))
        kept[:] = [torch.stack(rows).to("cpu", non_blocking=True)]
    return look


def histograms(training):
    """As trackers do it in a gradient's hook: finite ones alone, 64 bins between the smallest and the largest."""
    kept = []

    def look():
        kept.clear()
        for p in training.parameters:
            flat = p.grad.detach().reshape(-1).float()
            flat = flat[torch.isfinite(flat)]
            low, high = flat.min().item(), flat.max().item()
            kept.append((low, high, flat.histc(64, low, high).tolist() if low < high else None))
    return look


RIVALS = {"norms": norms, "by hand": by_hand, "histograms": histograms}
BLOCKS = r"(.*\.)?(attention|mlp|blocks\.\d+)_output_0$"
OF_BLOCKS = {"o": {"include_regex": ["^(?!output_gradient/)" + BLOCKS], "raw": False}}
RULES: dict = {"record_end": False, "rules": []}
OURS = {
    "tdbg": {},
    "tdbg and origins waited for": {},
    "tdbg outputs of blocks": {"collections": OF_BLOCKS},
    "tdbg and their gradients": {"collections": {**OF_BLOCKS, "g": {"include_regex": ["^output_gradient/" + BLOCKS], "raw": False}}},
    "tdbg all outputs": {"collections": {"outputs": {"raw": False}}},
    "tdbg and all gradients": {"collections": {"outputs": {"raw": False}, "output_gradients": {"raw": False}}},
    "tdbg raw gradients": {"collections": {"gradients": {"save_interval": 1}}, "budget": "60GB"},
    "tdbg nothing due": {"summaries": {"every": 0}, "context": False},
}


#: Steps before a block is timed: in a run's first twenty tdbg looks at data more closely. Fewer where they take longer.
WARM, WARM_SECONDS = 24, 0.3


class Measured:
    def __init__(self, training, device, work):
        self.training, self.device, self.work = training, device, work
        self.times, self.dropped, self.steps = {}, {}, {}

    def synchronize(self):
        if self.device == "cuda":
            torch.cuda.synchronize()

    def block(self, variant, seconds):
        training, session, look, run = self.training, None, None, self.work / "run"
        if variant in OURS:
            import tdbg
            os.environ["TDBG_NAN_ORIGIN"] = "wait" if "waited" in variant else ""
            session = tdbg.attach(training.model, dir=str(run), config={**RULES, **OURS[variant]})
        elif variant in RIVALS:
            look = RIVALS[variant](training)
            training.before_update.append(look)
        try:
            begin = time.perf_counter()
            for n in range(WARM):
                training.step()
                if n >= 2 and time.perf_counter() - begin > WARM_SECONDS:
                    break
            self.synchronize()
            if variant not in self.steps:
                begin = time.perf_counter()
                training.step()
                self.synchronize()
                self.steps[variant] = max(3, min(300, round(seconds / (time.perf_counter() - begin))))
            begin = time.perf_counter()
            for _ in range(self.steps[variant]):
                training.step()
            self.synchronize()
            self.times.setdefault(variant, []).append((time.perf_counter() - begin) / self.steps[variant])
        finally:
            if look is not None:
                training.before_update.remove(look)
            if session is not None:
                session.close()
                self.dropped[variant] = [str(some) for some in tdbg.open(str(run)).dropped()]
                shutil.rmtree(run, ignore_errors=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", choices=[*GPTS, "cnn", "tensors1200"])
    parser.add_argument("--variants", default=",".join([*OURS, *RIVALS]))
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=1.0, help="of a block")
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    chosen = arguments.variants.split(",")
    unknown = [v for v in chosen if v not in OURS and v not in RIVALS]
    if unknown:
        parser.error(f"no variant {unknown[0]!r}; there are: {', '.join([*OURS, *RIVALS])}")
    if arguments.device == "cuda" and not torch.cuda.is_available():
        print("skipped: no GPU here (--device cpu tries the program)", file=sys.stderr)
        return 77
    with tempfile.TemporaryDirectory() as work:
        measured = Measured(Training(arguments.model, arguments.device), arguments.device, pathlib.Path(work))
        for _ in range(arguments.rounds):
            for variant in ["bare", *chosen, "bare again"]:
                measured.block(variant, arguments.seconds)
    name = torch.cuda.get_device_name() if arguments.device == "cuda" else "CPU"
    bare = statistics.median(measured.times["bare"] + measured.times["bare again"])
    rows = [{"variant": v, "ms": 1e3 * statistics.median(t), "ratio": statistics.median(t) / bare, "dropped": measured.dropped.get(v, [])}
            for v, t in measured.times.items()]
    if arguments.json:
        print(json.dumps({"model": arguments.model, "device": name, "torch": torch.__version__, "rows": rows}))
        return 0
    print(f"\n{arguments.model} on {name}, torch {torch.__version__}\n\n| variant | ms a step | ratio to bare | dropped |\n|---|---|---|---|")
    for row in rows:
        print(f"| {row['variant']} | {row['ms']:.3f} | {row['ratio']:.4f} | {'; '.join(row['dropped'])[:60] or 'nothing'} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
