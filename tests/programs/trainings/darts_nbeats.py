"""darts: N-BEATS forecasts a sine; Lightning trains it: darts_nbeats.py FOLDER"""

import logging
import sys

import numpy as np
import said
import torch
from darts import TimeSeries
from darts.models import NBEATSModel
from pytorch_lightning import Callback

logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
torch.set_num_threads(1)


class Saying(Callback):
    def on_train_batch_end(self, trainer, module, outputs, batch, index):
        said.loss(outputs["loss"])

    def on_train_end(self, trainer, module):
        said.steps(trainer.global_step)


series = TimeSeries.from_values(np.sin(np.arange(60) / 3).astype(np.float32))
model = NBEATSModel(input_chunk_length=8, output_chunk_length=4, num_stacks=2, num_blocks=1, num_layers=2, layer_widths=8, n_epochs=2,
                    batch_size=16, random_state=3, work_dir=sys.argv[1],
                    pl_trainer_kwargs=dict(accelerator="cpu", callbacks=[Saying()], logger=False, enable_progress_bar=False,
                                           enable_model_summary=False, enable_checkpointing=False))
model.fit(series[:40], val_series=series[10:50], verbose=False)
model.predict(4)
