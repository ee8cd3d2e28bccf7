"""Libraries on top of PyTorch, on one GPU: where they are installed."""

import os

import pytest
import torch
import torch.nn.functional as F
from suite import Program, compare, lost, settings, watched
from test_gpu_trainings import batch, mlp

import tdbg

pytestmark = pytest.mark.gpu
TRAIN = tdbg.ModeKeys.TRAIN


@pytest.fixture
def one_rank(tmp_path):
    torch.distributed.init_process_group("nccl", init_method=f"file://{tmp_path}/rendezvous", rank=0, world_size=1,
                                         device_id=torch.device("cuda", 0))
    yield
    torch.distributed.destroy_process_group()


def stepping(model, call, optimizer):
    def step(n):
        x, y = batch(n)
        optimizer.zero_grad()
        F.cross_entropy(call(x), y).backward()
        optimizer.step()
    return Program(model, [optimizer], step)


def test_distributed_data_parallel(tmp_path, one_rank):
    model = mlp()
    call = torch.nn.parallel.DistributedDataParallel(model, device_ids=[0])
    trial, truth = watched(stepping(model, call, torch.optim.AdamW(model.parameters(), fused=True)), tmp_path / "run", 5)
    compare(trial, truth)


def test_fully_sharded_data_parallel(tmp_path, one_rank):
    from torch.distributed.fsdp import fully_shard
    model = mlp()
    for layer in model:
        if isinstance(layer, torch.nn.Linear):
            fully_shard(layer)
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    trial, _ = watched(stepping(model, model, optimizer), tmp_path / "run", 5, truth=False)
    assert not lost(trial) and len(trial.steps(mode=TRAIN)) == 5
    assert any(name.startswith("gradient/") for name in trial.tensor_names(step=trial.steps(mode=TRAIN)[-1]))


def test_a_trainer_of_hugging_face(tmp_path):
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    config = transformers.GPT2Config(n_layer=2, n_head=2, n_embd=32, vocab_size=100, n_positions=32)
    model = transformers.GPT2LMHeadModel(config)
    data = [{"input_ids": torch.randint(0, 100, (16,)), "labels": torch.randint(0, 100, (16,))} for _ in range(32)]
    arguments = transformers.TrainingArguments(output_dir=str(tmp_path / "out"), max_steps=6, per_device_train_batch_size=4, bf16=True,
                                               report_to=[], save_strategy="no", disable_tqdm=True, logging_steps=1)
    session = tdbg.attach(model, dir=str(tmp_path / "run"), config=settings())
    transformers.Trainer(model, arguments, train_dataset=data).train()
    session.close()
    trial = tdbg.open(str(tmp_path / "run"))
    assert not lost(trial), lost(trial)
    assert len(trial.steps(mode=TRAIN)) == 6


def test_a_trainer_of_lightning(tmp_path):
    lightning = pytest.importorskip("lightning")

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = mlp()

        def training_step(self, x, n):
            return self.net(x[0]).square().mean()

        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters())

    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(48, 24)), batch_size=8)
    model = Module()
    session = tdbg.attach(model, dir=str(tmp_path / "run"), config=settings())
    lightning.Trainer(max_epochs=1, accelerator="gpu", devices=1, precision="bf16-mixed", logger=False, enable_checkpointing=False,
                      enable_progress_bar=False, default_root_dir=os.fspath(tmp_path)).fit(model, data)
    session.close()
    trial = tdbg.open(str(tmp_path / "run"))
    assert not lost(trial), lost(trial)
    assert len(trial.steps(mode=TRAIN)) == 6


def test_a_booster_on_the_device_is_right(tmp_path):
    xgboost = pytest.importorskip("xgboost")
    data = xgboost.DMatrix(torch.randn(500, 8).numpy(), label=torch.randint(0, 2, (500,)).numpy())
    session = tdbg.attach(framework="xgboost", dir=str(tmp_path / "run"), config=settings())
    bare = xgboost.train({"device": "cuda", "objective": "binary:logistic"}, data, 5)
    session.close()
    again = xgboost.train({"device": "cuda", "objective": "binary:logistic"}, data, 5)
    assert bare.save_raw("json") == again.save_raw("json")
