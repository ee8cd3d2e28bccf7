"""Lightning, a small transformer that sorts; tdbg is nowhere in it.

    tdbg run --dir runs/lightning -- python examples/lightning_trainer.py
    tdbg tensors runs/lightning

Its optimizers run forward and backward inside step(closure). Gradients are accumulated over two micro-batches and
clipped; each epoch ends with a validation.
"""

import argparse

import lightning
import torch
from torch import nn

VALUES, LENGTH = 32, 8


class Sorter(lightning.LightningModule):
    """Reads LENGTH numbers and says, at each place, which one belongs there."""

    def __init__(self, width=48):
        super().__init__()
        self.embedding = nn.Embedding(VALUES, width)
        self.position = nn.Parameter(0.02 * torch.randn(LENGTH, width))
        layer = nn.TransformerEncoderLayer(width, 4, 2 * width, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(width, VALUES)

    def forward(self, numbers):
        return self.head(self.encoder(self.embedding(numbers) + self.position))

    def loss(self, batch):
        numbers, = batch
        return nn.functional.cross_entropy(self(numbers).flatten(0, 1), numbers.sort(dim=1).values.flatten())

    def training_step(self, batch, batch_index):
        return self.loss(batch)

    def validation_step(self, batch, batch_index):
        self.log("validation_loss", self.loss(batch), prog_bar=True)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=3e-3)


def batches(count, size, seed):
    numbers = torch.randint(VALUES, (count, LENGTH), generator=torch.Generator().manual_seed(seed))
    return torch.utils.data.DataLoader(torch.utils.data.TensorDataset(numbers), batch_size=size)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--rows", type=int, default=1024)
    options = parser.parse_args()

    lightning.seed_everything(1, verbose=False)
    trainer = lightning.Trainer(
        max_epochs=options.epochs, accelerator="cpu", accumulate_grad_batches=2, gradient_clip_val=1.0, logger=False,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False, num_sanity_val_steps=1)
    model = Sorter()
    trainer.fit(model, batches(options.rows, 32, seed=2), batches(256, 64, seed=3))
    print(f"loss of the last validation: {trainer.callback_metrics['validation_loss']:.3f}")


if __name__ == "__main__":
    main()
