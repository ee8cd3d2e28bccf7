"""Hugging Face's Trainer in a setting of SETTINGS: hf_trainer.py SETTING FOLDER"""

import sys

import language
import torch
from transformers import Trainer, TrainingArguments

EVALUATED = dict(eval_strategy="steps", eval_steps=3)
SETTINGS = {
    "plain": {},
    "accumulated": dict(gradient_accumulation_steps=2, **EVALUATED),
    "smoothed": dict(label_smoothing_factor=0.1, **EVALUATED),
    "checkpointed": dict(gradient_checkpointing=True, bf16=True, max_grad_norm=0.1, **EVALUATED),
    "compiled": dict(torch_compile=True, torch_compile_backend="aot_eager", **EVALUATED),
    "adafactor": dict(optim="adafactor", lr_scheduler_type="cosine", weight_decay=0.1),
}


def tokens(count, seed):
    random = torch.Generator().manual_seed(seed)
    start = torch.randint(9, 19, (count, 1), generator=random)
    rows = 9 + (start + torch.arange(12)) % 10
    labels = rows.clone()
    labels[:, 0] = -100     # the Trainer divides by the number of labels, and nothing predicts the first one
    return [{"input_ids": row, "labels": label} for row, label in zip(rows, labels)]


setting, folder = sys.argv[1:]
model = language.model()
trainer = Trainer(model=model, args=TrainingArguments(output_dir=folder, **{**language.ARGUMENTS, **SETTINGS[setting]}),
                  train_dataset=tokens(64, seed=2), eval_dataset=tokens(8, seed=3), callbacks=[language.Saying()])
trainer.train()
