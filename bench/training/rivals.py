"""What tdbg is measured against, each attached the way its own documentation shows."""

import os

import torch


def attach(variant, training, out):
    """Attaches `variant` to the training; does nothing for names that are not a rival's (bare, tdbg's)."""
    attachers = {
        "hand_rolled": _hand_rolled,
        "smdebug_raw": _smdebug_raw,
        "smdebug_parameters": _smdebug_parameters,
        "wandb": _wandb,
        "tensorboard": _tensorboard,
        "trainscope": _trainscope,
        "trainscope_every_step": _trainscope_every_step,
    }
    if variant in attachers:
        attachers[variant](training, out)


def _hand_rolled(training, out):
    """What people write themselves: four reductions of every parameter and gradient, read back at once."""
    seen = []

    def after(loss):
        row = [loss.item()]
        with torch.no_grad():
            for parameter in training.model.parameters():
                for t in (parameter, parameter.grad):
                    row += [t.mean().item(), t.std().item(), t.norm().item(), t.abs().max().item()]
        seen[:] = [row]

    training.after_update.append(after)


def _smdebug(training, out, collections, custom=None):
    import smdebug.pytorch as smd

    hook = smd.Hook(
        out_dir=os.path.join(out, "smdebug"),
        save_config=smd.SaveConfig(save_interval=1),
        include_collections=collections + ([custom] if custom else []),
    )
    if custom:
        hook.add_collection(smd.Collection(custom, include_regex=[f"{custom}.*_output"]))
    hook.register_module(training.model)
    hook.register_loss(training.criterion)
    hook.set_mode(smd.modes.TRAIN)


def _smdebug_raw(training, out):
    """Raw weights, gradients, biases, losses and relu outputs at every step."""
    _smdebug(training, out, ["weights", "gradients", "biases", "losses"], custom="relu")


def _smdebug_parameters(training, out):
    """Raw parameters and gradients at every step."""
    _smdebug(training, out, ["weights", "gradients", "biases"])


def _wandb(training, out):
    os.environ.update(WANDB_MODE="offline", WANDB_SILENT="true")
    import wandb

    run = wandb.init(project="bench", dir=out)
    wandb.watch(training.model, log="all", log_freq=1)
    training.after_update.append(lambda loss: run.log({"loss": loss.item()}))


def _tensorboard(training, out):
    from torch.utils.tensorboard import SummaryWriter

    writer = SummaryWriter(os.path.join(out, "tensorboard"))
    step = 0

    def after(loss):
        nonlocal step
        writer.add_scalar("loss", loss.item(), step)
        for name, parameter in training.model.named_parameters():
            writer.add_histogram(name, parameter, step)
            writer.add_histogram("gradient/" + name, parameter.grad, step)
        step += 1

    training.after_update.append(after)


def _trainscope(training, out, **options):
    """Its defaults: histograms 1 step in 50, activations 1 in 5."""
    from trainscope import TrainScope
    from trainscope.core.config import TrainScopeConfig

    config = TrainScopeConfig(run_dir=os.path.join(out, "trainscope"), **options)
    scope = TrainScope(training.model, training.optimizer, config=config).attach()
    training.before_update.append(lambda loss: scope.step(loss.item()))


def _trainscope_every_step(training, out):
    _trainscope(
        training,
        out,
        histogram_every_n_steps=1,
        activation_metrics_every_n_steps=1,
        activation_layer_filter=None,
        stop_on_spike=False,
    )
