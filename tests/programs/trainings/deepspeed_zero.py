"""DeepSpeed's engine with ZeRO of stage 0 or 1 on one rank: deepspeed_zero.py STAGE"""

import os
import sys

os.environ.update(DS_ACCELERATOR="cpu", RANK="0", LOCAL_RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1",
                  MASTER_PORT=os.environ.get("PROGRAM_PORT", "29533"))

import deepspeed  # noqa: E402
import said  # noqa: E402
import torch  # noqa: E402

STEPS = 6

torch.set_num_threads(1)
torch.manual_seed(2)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden, self.norm, self.out = torch.nn.Linear(6, 16), torch.nn.LayerNorm(16), torch.nn.Linear(16, 3)

    def forward(self, x):
        return self.out(torch.relu(self.norm(self.hidden(x))))


deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False      # else it is compiled, for minutes
deepspeed.init_distributed("gloo")
model = Net()
stage = int(sys.argv[1])
groups = [{"params": [p for p in model.parameters() if p.dim() > 1], "weight_decay": 0.1},
          {"params": [p for p in model.parameters() if p.dim() == 1], "weight_decay": 0.0}]
engine, optimizer, _, _ = deepspeed.initialize(
    model=model, optimizer=torch.optim.AdamW(groups, lr=1e-2),
    config={"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 1, "gradient_clipping": 1.0,
            "zero_optimization": {"stage": stage}, "zero_allow_untested_optimizer": True,
            "zero_force_ds_cpu_optimizer": False, "steps_per_print": 1000})
for _ in range(STEPS):
    x, y = torch.randn(4, 6), torch.randint(0, 3, (4,))
    loss = torch.nn.functional.cross_entropy(engine(x), y)
    said.loss(loss)
    engine.backward(loss)
    engine.step()
engine.eval()
with torch.no_grad():
    said.evaluated(torch.nn.functional.cross_entropy(engine(x), y))
said.steps(engine.global_steps)
torch.distributed.destroy_process_group()
