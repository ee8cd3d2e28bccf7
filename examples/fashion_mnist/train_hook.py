"""train.py with the hook of smdebug's users: the script itself says what is saved.

    pip install tdbg-smdebug
    python train_hook.py --out-dir runs/hook --steps 300

Needs no `tdbg run`; under it the run is the launcher's, and what the hook says is saved is saved.
"""

import argparse

import torch
from smdebug.pytorch import Hook, SaveConfig, modes
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from train import PLACES, Net, evaluate, load


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out-dir", required=True, help="the run directory")
    parser.add_argument("--save-interval", type=int, default=100)
    parser.add_argument("--steps", type=int, default=937, help="how many batches of 64 images to train on")
    parser.add_argument("--test-images", type=int, default=1000)
    parser.add_argument("--data", default=PLACES[0], help="folder with the four IDX files (default: %(default)s)")
    arguments = parser.parse_args()

    torch.manual_seed(0)
    images, labels = (part[:arguments.steps * 64] for part in load(arguments.data, "train"))
    test = TensorDataset(*(part[:arguments.test_images] for part in load(arguments.data, "t10k")))
    model, loss_function = Net(), nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

    hook = Hook(arguments.out_dir, include_collections=["weights", "gradients", "losses"],
                save_config=SaveConfig(save_interval=arguments.save_interval))
    hook.register_module(model)
    hook.register_loss(loss_function)

    hook.set_mode(modes.TRAIN)
    for batch, target in DataLoader(TensorDataset(images, labels), 64, shuffle=True, drop_last=True):
        optimizer.zero_grad()
        loss = loss_function(model(batch), target)
        loss.backward()
        optimizer.step()
    hook.set_mode(modes.EVAL)
    print("test loss {:.4f} accuracy {:.4f}".format(*evaluate(model, loss_function, DataLoader(test, 250))), flush=True)


if __name__ == "__main__":
    main()
