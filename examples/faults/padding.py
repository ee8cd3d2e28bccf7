"""Sequences that are mostly padding: every batch is as long as the longest sequence there is.

Healthy: sequences of similar length together, and each batch as long as its own longest.
"""

import torch
from data import arguments
from torch import nn

VOCABULARY, LONGEST, PADDING = 200, 64, 0


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(VOCABULARY, 16, padding_idx=PADDING)
        self.positions = nn.Embedding(LONGEST, 16)
        self.fc = nn.Linear(16, 2)

    def forward(self, tokens):
        vectors = self.words(tokens) + self.positions(torch.arange(tokens.shape[1]))
        return self.fc(vectors.mean(1))


given = arguments(__doc__)
# Most texts are short, a few are long; they are about whether the first word is in the vocabulary's first half.
texts = [torch.randint(1, VOCABULARY, (int(n),)) for n in torch.randint(4, 17, (960,))]
texts[7] = torch.randint(1, VOCABULARY, (LONGEST,))
if given.healthy:
    texts.sort(key=len)
model = Net()
loss_function = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

for step, first in enumerate(range(0, len(texts), 32)):
    batch = texts[first:first + 32]
    length = max(map(len, batch)) if given.healthy else LONGEST
    tokens = torch.stack([nn.functional.pad(text, (0, length - len(text)), value=PADDING) for text in batch])
    optimizer.zero_grad()
    loss = loss_function(model(tokens), (tokens[:, 0] > VOCABULARY // 2).long())
    loss.backward()
    optimizer.step()
    if step % 10 == 0:
        print(f"step {step} loss {loss.item():.4f}", flush=True)
