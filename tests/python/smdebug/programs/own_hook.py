"""A hook of one's own, as in Amazon's published examples: more of each module is saved than smdebug's does."""

from common import OUT, Net, describe, tell
import smdebug.pytorch as smd
import torch
from smdebug import modes
from smdebug.core.modes import ModeKeys
from smdebug.trials import create_trial


class CustomHook(smd.Hook):
    def forward_hook(self, module, inputs, outputs):
        name = self.module_names[id(module)]
        self._write_inputs(name, inputs)
        # Of a module that is called twice (relu) the last gradient of a step is its value.
        if isinstance(outputs, torch.Tensor) and outputs.requires_grad:
            outputs.register_hook(self.backward_hook(name + "_output"))
        self._write_outputs(name, outputs)
        for own, buffer in module.named_buffers(recurse=False):
            self._write_raw_tensor_simple(f"{name}.{own}", buffer)
        self.last_saved_step = self.step


torch.manual_seed(8)


class Normed(Net):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(6)

    def forward(self, x):
        return super().forward(self.norm(x))


net = Normed()
hook = CustomHook(OUT, save_config=smd.SaveConfig(save_interval=2), include_collections=["custom"],
                  include_regex=[".*output"])
hook.get_collection("custom").include([".*norm", ".*fc1.*"])
hook.module_names = {id(m): n or "Normed" for n, m in net.named_modules()}
hook.register_module(net)
for n in range(5):
    hook.set_mode(modes.TRAIN)
    net(torch.randn(4, 6)).sum().backward()
print(hook.mode_steps[ModeKeys.TRAIN])
steps = {m.name: s for m, s in hook.mode_steps.items()}
hook.close()
found = describe(create_trial(OUT), [modes.TRAIN], ["custom", "default"])
found["mode steps"] = steps
tell(found)
