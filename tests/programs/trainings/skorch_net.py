"""skorch: a classifier as scikit-learn has them, with a split for validation of its own."""

import numpy as np
import said
import torch
from skorch import NeuralNetClassifier
from skorch.callbacks import Callback

torch.set_num_threads(1)
torch.manual_seed(2)
np.random.seed(2)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden, self.norm, self.out = torch.nn.Linear(6, 16), torch.nn.BatchNorm1d(16), torch.nn.Linear(16, 3)

    def forward(self, x):
        return self.out(torch.relu(self.norm(self.hidden(x))))


class Saying(Callback):
    steps = 0

    def on_batch_end(self, net, batch=None, training=False, loss=None, **others):
        (said.loss if training else said.evaluated)(loss)
        self.steps += bool(training)


saying = Saying()
net = NeuralNetClassifier(Net, criterion=torch.nn.CrossEntropyLoss, optimizer=torch.optim.Adam, lr=0.01, max_epochs=2, batch_size=8,
                          verbose=0, callbacks=[saying], iterator_train__shuffle=True)
x = np.random.randn(40, 6).astype(np.float32)
y = np.arange(40) % 3
x[:, 0] += y
net.fit(x, y)
net.predict(x[:4])
said.steps(saying.steps)
