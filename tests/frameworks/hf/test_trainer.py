"""Hugging Face's Trainer: what it trained on is what the run says."""

import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest
import torch
from kept import EVERYTHING, assert_same, series, snapshot

import tdbg

transformers = pytest.importorskip("transformers")
ROOT = pathlib.Path(__file__).resolve().parents[3]
BATCH, MICRO, CLIP = 4, 2, 0.5


def model():
    transformers.set_seed(1)
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(
        vocab_size=17, n_positions=8, n_embd=8, n_layer=1, n_head=2, bos_token_id=None, eos_token_id=None))


def texts(count, seed=0):
    tokens = torch.randint(17, (count, 8), generator=torch.Generator().manual_seed(seed))
    labels = tokens.clone()
    labels[:, :3] = -100                       # as padding and prompts are: they count for nothing
    labels[::2, 3:5] = -100
    return [{"input_ids": i, "labels": t} for i, t in zip(tokens, labels)]


class Watching(transformers.TrainerCallback):
    """Keeps what the Trainer has just before the optimizer's step: clipped gradients, weights before the update."""

    def __init__(self):
        self.snapshots, self.rates, self.logs = [], [], []

    def on_pre_optimizer_step(self, args, state, control, model=None, optimizer=None, **others):
        self.snapshots.append(snapshot(model, "GPT2LMHeadModel"))
        self.rates.append(optimizer.param_groups[0]["lr"])

    def on_log(self, args, state, control, logs=None, **others):
        self.logs.append(dict(logs))

    def of(self, key):
        return [entry[key] for entry in self.logs if key in entry]


def trainer(net, folder, watching=None, **arguments):
    arguments = {"max_steps": 4, "per_device_train_batch_size": BATCH, "gradient_accumulation_steps": MICRO,
                 "learning_rate": 1e-2, "max_grad_norm": CLIP, "logging_steps": 1, "save_strategy": "no",
                 "eval_strategy": "steps", "eval_steps": 2, "per_device_eval_batch_size": 8, "report_to": [],
                 "use_cpu": True, "disable_tqdm": True, **arguments}
    return transformers.Trainer(
        model=net, args=transformers.TrainingArguments(output_dir=str(folder), **arguments), train_dataset=texts(64),
        eval_dataset=texts(16, seed=1), callbacks=[watching] if watching else [])


def test_weights_gradients_losses_and_modes_are_the_trainers(watched, tmp_path):
    watching = Watching()
    _, run = watched(lambda: trainer(model(), tmp_path / "out", watching).train(), **EVERYTHING)
    assert_same(run, watching.snapshots)
    # Two evaluations, after the second and the fourth step, two batches each.
    assert run.steps(mode="EVAL", kind="any") == [0, 1, 2, 3]
    assert [run.mode(step).name for step in range(8)] == ["TRAIN"] * 2 + ["EVAL"] * 2 + ["TRAIN"] * 2 + ["EVAL"] * 2
    assert series(run, "context/micro_steps", "TRAIN") == [MICRO] * 4
    assert series(run, "context/lr/AdamW/0", "TRAIN") == watching.rates
    np.testing.assert_allclose(series(run, "context/grad_norm", "TRAIN"), watching.of("grad_norm"), rtol=1e-6)
    # What was trained on is what it logs, the sum over the micro-steps.
    np.testing.assert_allclose(series(run, "backward_loss", "TRAIN"), watching.of("loss"), rtol=1e-5)
    # Batches of 8 with equally many labels each: the evaluation's loss is the mean of theirs.
    losses = series(run, "CrossEntropyLoss_output_0", "EVAL")
    np.testing.assert_allclose([np.mean(losses[:2]), np.mean(losses[2:])], watching.of("eval_loss"), rtol=1e-6)


def test_label_smoothing_has_an_evaluation_loss(watched, tmp_path):
    """The Trainer computes it without a loss function of torch's."""
    watching = Watching()
    job = trainer(model(), tmp_path / "out", watching, label_smoothing_factor=0.1)
    own = job.prediction_step
    _, run = watched(job.train, **EVERYTHING)
    assert job.prediction_step == own and "prediction_step" not in vars(job)
    np.testing.assert_allclose(series(run, "backward_loss", "TRAIN"), watching.of("loss"), rtol=1e-5)
    losses = series(run, "backward_loss", "EVAL")
    np.testing.assert_allclose([np.mean(losses[:2]), np.mean(losses[2:])], watching.of("eval_loss"), rtol=1e-6)
    assert "backward_loss" in run.tensor_names(collection="losses")


def test_a_trainers_own_loss_goes_before_one_that_the_model_returns(watched, tmp_path):
    """DPO's is none of the model's, which gives one all the same."""
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = torch.nn.Linear(8, 3)

        def forward(self, input_ids, labels):
            logits = self.fc(input_ids.float())
            return {"loss": (logits - 100).abs().mean(), "logits": logits}

    class Own(transformers.Trainer):
        def compute_loss(self, model, inputs, return_outputs=False, **others):
            outputs = model(**inputs)
            loss = outputs["logits"].square().mean()
            return (loss, outputs) if return_outputs else loss

    watching = Watching()
    torch.manual_seed(1)
    base = trainer(Net(), tmp_path / "out", watching, gradient_accumulation_steps=1)
    watching.on_pre_optimizer_step = lambda *args, **others: None
    job = Own(model=base.model, args=base.args, train_dataset=texts(64), eval_dataset=texts(16, seed=1), callbacks=[watching])
    _, run = watched(job.train, **EVERYTHING)
    np.testing.assert_allclose(series(run, "backward_loss", "TRAIN"), watching.of("loss"), rtol=1e-5)
    losses = series(run, "backward_loss", "EVAL")
    np.testing.assert_allclose([np.mean(losses[:2]), np.mean(losses[2:])], watching.of("eval_loss"), rtol=1e-6)


def test_a_loss_is_a_mean_whatever_is_accumulated(watched, tmp_path):
    """The Trainer has it as a sum over the micro-batch divided by all micro-batches' tokens."""
    net, means = model(), []

    class Means(transformers.TrainerCallback):
        def on_step_begin(self, args, state, control, **others):
            means.append([])

    job = trainer(net, tmp_path / "out", eval_strategy="no")
    job.add_callback(Means())
    inner = job.compute_loss

    def compute_loss(net, inputs, *args, **kwargs):
        with torch.no_grad():
            logits = net(input_ids=inputs["input_ids"]).logits[:, :-1]
        targets = inputs["labels"][:, 1:]
        own = -logits.log_softmax(-1).gather(-1, targets.clamp(min=0)[..., None])[..., 0]
        means[-1].append(float(own[targets != -100].mean()))
        return inner(net, inputs, *args, **kwargs)

    job.compute_loss = compute_loss
    net.config.resid_pdrop = 0.0
    for module in net.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    _, run = watched(job.train, **EVERYTHING)
    assert [len(step) for step in means] == [MICRO] * 4
    np.testing.assert_allclose(series(run, "CrossEntropyLoss_output_0", "TRAIN"), np.mean(means, axis=1), rtol=1e-5)


def test_watched_or_not_the_result_is_the_same(watched, tmp_path):
    def train():
        net = model()
        trainer(net, tmp_path / "out").train()
        return net.state_dict()

    bare = train()
    seen, _ = watched(train, **EVERYTHING)
    assert all(torch.equal(bare[name], seen[name]) for name in bare)


def test_a_second_training_in_the_process_continues_the_run(watched, tmp_path):
    first, second = Watching(), Watching()

    def train():
        trainer(model(), tmp_path / "out", first, eval_strategy="no", max_steps=2).train()
        trainer(model(), tmp_path / "out", second, eval_strategy="no", max_steps=2).train()

    _, run = watched(train, **EVERYTHING)
    assert len(run.steps(mode="TRAIN")) == 4
    names = run.tensor_names(regex="wte")
    assert names == ["GPT2LMHeadModel_1_transformer.wte.weight", "GPT2LMHeadModel_transformer.wte.weight",
                     "gradient/GPT2LMHeadModel_1_transformer.wte.weight", "gradient/GPT2LMHeadModel_transformer.wte.weight"]
    last = second.snapshots[-1]["GPT2LMHeadModel_transformer.wte.weight"]
    np.testing.assert_array_equal(run.tensor(names[0]).value(3), last)


def test_outputs_of_blocks_are_seen_in_tuples_and_model_outputs(watched, tmp_path):
    seen = []
    net = model()
    net.transformer.h[0].mlp.act.register_forward_hook(lambda m, args, out: seen.append(out.detach().numpy().copy()))
    job = trainer(net, tmp_path / "out", gradient_accumulation_steps=1, eval_strategy="no", max_steps=2)
    _, run = watched(job.train, collections={"some": {"include_regex": ["mlp.act_output_0", "^GPT2LMHeadModel_output_"],
                                                      "save_interval": 1}})
    assert "transformer.h.0.mlp.act_output_0" in run.tensor_names()
    for step in range(2):
        np.testing.assert_array_equal(run.tensor("transformer.h.0.mlp.act_output_0").value(step), seen[step])
    assert run.tensor("GPT2LMHeadModel_output_1").value(0).shape == (BATCH, 8, 17), "the logits, after the loss"


def test_bfloat16_autocast_and_checkpointed_activations(watched, tmp_path):
    watching = Watching()
    job = trainer(model(), tmp_path / "out", watching, bf16=True, gradient_checkpointing=True)
    _, run = watched(job.train, **EVERYTHING)
    assert_same(run, watching.snapshots)
    assert run.steps(mode="EVAL", kind="any") == [0, 1, 2, 3]


def test_example_under_tdbg_run(tmp_path):
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [os.environ["TDBG_CLI"], "run", "--dir", str(tmp_path / "run"), "--", sys.executable,
         str(ROOT / "examples" / "hf_trainer.py"), "--texts", "64", "--output", str(tmp_path / "out")],
        capture_output=True, text=True, timeout=300, env=environment, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    run = tdbg.open(str(tmp_path / "run"))
    assert run.dropped() == [] and len(run.steps(mode="TRAIN")) == 4 and len(run.steps(mode="EVAL")) == 6
    names = set(run.tensor_names())
    assert {"GPT2LMHeadModel_transformer.h.1.attn.c_attn.weight", "gradient/GPT2LMHeadModel_transformer.wte.weight",
            "GPT2LMHeadModel_transformer.ln_f.bias", "CrossEntropyLoss_output_0"} <= names
    assert "tdbg" not in (ROOT / "examples" / "hf_trainer.py").read_text().split('"""')[2]
