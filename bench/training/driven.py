"""worker.py for trainings whose loop is a framework's: Hugging Face's Trainer, Lightning. The same commands.

A callback at the beginning of each step reads them; the time of a block is from its first step's beginning to the beginning of
the step after its last.
"""

import argparse
import json
import os
import random
import resource
import sys
import time

parser = argparse.ArgumentParser()
parser.add_argument("--model", required=True)
parser.add_argument("--variant", default="bare")
parser.add_argument("--threads", type=int, default=1)
parser.add_argument("--out", default=".")
args = parser.parse_args()
os.environ["HF_HUB_OFFLINE"] = "1"

import numpy as np  # noqa: E402
import torch  # noqa: E402

torch.set_num_threads(args.threads)
answers = os.fdopen(os.dup(1), "w", buffering=1)
os.dup2(2, 1)  # whatever a framework prints must not look like an answer


def statistics(x):
    x = x.detach().numpy().astype(np.float64)
    return {"mean": x.mean(), "l2": float(np.sqrt((x * x).sum())), "min": x.min(), "max": x.max(), "variance": x.var()}


class Commands:
    def __init__(self):
        self.left = self.steps = 0
        self.started = None
        self.verifying = None
        self.found = {}

    def step_begins(self):
        """False when it is time to stop."""
        if self.left:
            self.left -= 1
            if self.left:
                self.steps += 1
                return True
            wall, cpu = time.perf_counter() - self.started[0], time.process_time() - self.started[1]
            if self.verifying is not None:
                answer = {"step": self.verifying, "tensors": self.found}
            else:
                answer = {"wall": wall, "cpu": cpu, "steps": self.steps}
            print(json.dumps(answer), file=answers)
        self.verifying, self.found = None, {}
        while True:
            command, *rest = sys.stdin.readline().split() or ["quit"]
            if command == "memory":
                print(json.dumps({"peak_kib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss}), file=answers)
            elif command == "quit":
                return False
            else:
                self.left = int(rest[0]) if command == "run" else 1
                self.verifying = self.steps if command == "verify" else None
                self.steps += 1
                self.started = time.perf_counter(), time.process_time()
                return True

    def before_update(self, model):
        if self.verifying is None:
            return
        root = type(model).__name__
        for name, parameter in random.Random(self.steps).sample(list(model.named_parameters()), 3):
            self.found[f"{root}_{name}"] = statistics(parameter)
            self.found[f"gradient/{root}_{name}"] = statistics(parameter.grad)


commands = Commands()
VOCABULARY, LENGTH, WIDTH, LAYERS, BATCH = 1000, 24, 96, 6, 8
tokens = torch.randint(VOCABULARY, (2048, LENGTH), generator=torch.Generator().manual_seed(0))


def hf_trainer():
    import transformers

    class Driven(transformers.TrainerCallback):
        def on_step_begin(self, arguments, state, control, **others):
            if not commands.step_begins():
                control.should_training_stop = True

        def on_pre_optimizer_step(self, arguments, state, control, model=None, **others):
            commands.before_update(model)

    transformers.set_seed(0)
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(
        vocab_size=VOCABULARY, n_positions=LENGTH, n_embd=WIDTH, n_layer=LAYERS, n_head=4, bos_token_id=None,
        eos_token_id=None))
    transformers.Trainer(
        model=model, train_dataset=[{"input_ids": row, "labels": row} for row in tokens], callbacks=[Driven()],
        args=transformers.TrainingArguments(
            output_dir=args.out, max_steps=10**8, per_device_train_batch_size=BATCH, report_to=[], use_cpu=True,
            save_strategy="no", logging_strategy="no", disable_tqdm=True)).train()


def lightning_trainer():
    import lightning
    from models import Transformer

    class Driven(lightning.Callback):
        def on_train_batch_start(self, trainer, module, batch, index):
            if not commands.step_begins():
                trainer.should_stop = True

        def on_before_optimizer_step(self, trainer, module, optimizer):
            commands.before_update(module)

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = Transformer(WIDTH, LAYERS, VOCABULARY, LENGTH)

        def training_step(self, batch, index):
            x, = batch
            return torch.nn.functional.cross_entropy(self.net(x).flatten(0, 1), x.roll(1, dims=1).flatten())

        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters(), lr=1e-4)

    torch.manual_seed(0)
    lightning.Trainer(
        max_epochs=-1, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, callbacks=[Driven()]).fit(
            Module(), torch.utils.data.DataLoader(torch.utils.data.TensorDataset(tokens), batch_size=BATCH))


sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
{"hf": hf_trainer, "lightning": lightning_trainer}[args.model]()
