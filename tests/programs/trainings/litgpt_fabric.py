"""litgpt's GPT under Lightning Fabric as litgpt's own scripts train it: FLOPs measured on the meta device, accumulated gradients."""

import lightning as L
import litgpt
import said
import torch
from litgpt.utils import chunked_cross_entropy
from torch.utils.data import DataLoader

MICRO, STEPS = 2, 6

torch.set_num_threads(1)
config = litgpt.Config(block_size=16, vocab_size=32, padded_vocab_size=32, n_layer=2, n_head=2, n_embd=16, rotary_percentage=1.0,
                       bias=False, norm_class_name="RMSNorm", mlp_class_name="LLaMAMLP", intermediate_size=32)
fabric = L.Fabric(accelerator="cpu", devices=1)
fabric.seed_everything(3, verbose=False)


def measure_flops():
    from lightning.fabric.utilities.throughput import measure_flops as measure
    with torch.device("meta"):
        model = litgpt.GPT(config)
        x = torch.randint(0, 1, (4, 16))
    return measure(model, lambda: model(x), lambda y: chunked_cross_entropy(y, x, chunk_size=0))


@torch.no_grad()
def validate(model, rows):
    model.eval()
    said.evaluated(chunked_cross_entropy(model(rows[:, :-1]), rows[:, 1:], chunk_size=0))
    model.train()


assert measure_flops() > 0
with fabric.init_module(empty_init=False):
    model = litgpt.GPT(config)
model = fabric.setup(model)
optimizer = fabric.setup_optimizers(torch.optim.AdamW(model.parameters(), lr=1e-2))
rows = (torch.randint(0, 32, (4 * MICRO * STEPS, 1)) + torch.arange(17)) % 32
micro = []
for number, batch in enumerate(fabric.setup_dataloaders(DataLoader(rows, batch_size=4)), 1):
    accumulates = number % MICRO != 0
    with fabric.no_backward_sync(model, enabled=accumulates):
        loss = chunked_cross_entropy(model(batch[:, :-1]), batch[:, 1:], chunk_size=0)
        micro.append(loss.detach())
        fabric.backward(loss / MICRO)
    if not accumulates:
        fabric.clip_gradients(model, optimizer, max_norm=1.0)
        optimizer.step()
        optimizer.zero_grad()
        said.loss(torch.stack(micro).mean())
        micro.clear()
validate(model, rows[:4])
said.steps(STEPS)
