"""diffusers: a U-Net learns to predict noise; an average of its weights is kept beside it (EMAModel)."""

import said
import torch
from diffusers import DDPMScheduler, UNet2DModel
from diffusers.optimization import get_cosine_schedule_with_warmup
from diffusers.training_utils import EMAModel

STEPS = 5

torch.set_num_threads(1)
torch.manual_seed(2)
model = UNet2DModel(sample_size=8, in_channels=1, out_channels=1, layers_per_block=1, block_out_channels=(8, 16), norm_num_groups=4,
                    down_block_types=("DownBlock2D", "AttnDownBlock2D"), up_block_types=("AttnUpBlock2D", "UpBlock2D"),
                    attention_head_dim=4)
average = EMAModel(model.parameters(), decay=0.9)
noise_schedule = DDPMScheduler(num_train_timesteps=50)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
schedule = get_cosine_schedule_with_warmup(optimizer, 1, STEPS)


def loss_of(images):
    noise, times = torch.randn_like(images), torch.randint(0, 50, (len(images),))
    return torch.nn.functional.mse_loss(model(noise_schedule.add_noise(images, noise, times), times).sample, noise)


for _ in range(STEPS):
    loss = loss_of(torch.rand(4, 1, 8, 8))
    said.loss(loss)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    schedule.step()
    optimizer.zero_grad()
    average.step(model.parameters())
average.store(model.parameters())
average.copy_to(model.parameters())
model.eval()
with torch.no_grad():
    said.evaluated(loss_of(torch.rand(4, 1, 8, 8)))
average.restore(model.parameters())
said.steps(STEPS)
