"""Hugging Face's Trainer, a small GPT-2 made from a configuration: nothing is downloaded, and tdbg is nowhere in it.

    tdbg run --dir runs/hf -- python examples/hf_trainer.py
    tdbg tensors runs/hf

It learns to count: each text is a run of numbers, modulo 61, with a step of its own. Gradients are accumulated over two
micro-batches and clipped; an evaluation follows each epoch.
"""

import argparse

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed

NUMBERS, LENGTH = 61, 16


def texts(count, seed):
    random = torch.Generator().manual_seed(seed)
    start = torch.randint(NUMBERS, (count, 1), generator=random)
    stride = torch.randint(1, 5, (count, 1), generator=random)
    tokens = (start + stride * torch.arange(LENGTH)) % NUMBERS
    return [{"input_ids": row, "labels": row} for row in tokens]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=float, default=2)
    parser.add_argument("--texts", type=int, default=512)
    parser.add_argument("--output", default="hf-trainer-output", help="where the Trainer may write")
    options = parser.parse_args()

    set_seed(1)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=NUMBERS, n_positions=LENGTH, n_embd=48, n_layer=2, n_head=4,
                                       bos_token_id=None, eos_token_id=None))
    trainer = Trainer(
        model=model,
        args=TrainingArguments(
            output_dir=options.output, num_train_epochs=options.epochs, learning_rate=3e-3, max_grad_norm=1.0,
            per_device_train_batch_size=16, gradient_accumulation_steps=2, per_device_eval_batch_size=64,
            eval_strategy="epoch", save_strategy="no", report_to=[], logging_steps=8, use_cpu=True, disable_tqdm=True),
        train_dataset=texts(options.texts, seed=2), eval_dataset=texts(128, seed=3))
    trainer.train()
    print(f"loss of the last evaluation: {trainer.evaluate()['eval_loss']:.3f}")


if __name__ == "__main__":
    main()
