"""PEFT: a LoRA adaptor on a frozen model, in a loop of one's own."""

import language
import said
import torch
from peft import LoraConfig, get_peft_model

STEPS = 8

model = get_peft_model(language.model(), LoraConfig(r=4, lora_alpha=8, target_modules=["c_attn", "c_proj"], lora_dropout=0.0,
                                                    fan_in_fan_out=True, task_type="CAUSAL_LM"))
optimizer = torch.optim.AdamW((p for p in model.parameters() if p.requires_grad), lr=1e-2)
random = torch.Generator().manual_seed(4)


def batch():
    return 9 + (torch.randint(0, 10, (4, 1), generator=random) + torch.arange(12)) % 10


for _ in range(STEPS):
    rows = batch()
    loss = model(input_ids=rows, labels=rows).loss
    said.loss(loss)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
model.eval()
with torch.no_grad():
    rows = batch()
    said.evaluated(model(input_ids=rows, labels=rows).loss)
said.steps(STEPS)
