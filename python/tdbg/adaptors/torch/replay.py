"""A process that is brought back into a step which a run has kept (`tdbg replay`): nothing is recorded.

    the first training forward of a model that has the kept one's parameters      gets weights, batch and random numbers
    loss functions after it      get the labels
    an optimizer is about to step      loss and gradients are compared, and the process ends
"""

from __future__ import annotations

import atexit
import json
import os
import sys
from typing import Any

import torch
from torch.optim import optimizer as _optim

from tdbg.blackbox.file import BlackBoxError
from tdbg.blackbox.opened import Opened, bits
from tdbg.blackbox.structure import ABSENT

from ..guard import say
from .by_hand import living_optimizers
from .losses import FUNCTIONS, in_backward
from .names import unwrap
from .origin.once import Once

SAME, DIFFERENT, NOT_REACHED = 0, 1, 6      # exit codes of `tdbg replay`


class Replay:
    """:param options: TDBG_REPLAY's: directory, anomaly, debugger, answer (a descriptor for JSON, or -1)"""

    def __init__(self, options: dict[str, Any]) -> None:
        self._options = options
        self._box = Opened(options["directory"])
        self._modules: dict[int, torch.nn.Module] = {}      # by number of the model, those that were brought back
        self._forwards = 0
        self._labels = self._box.targets
        self._targets = 0
        self._losses: list[bytes | None] = []
        self._depth = 0
        self._over = False
        self._notes: list[str] = []
        self._origin = Once()

    def arm(self) -> None:
        environment = self._box.document["environment"]
        threads = environment.get("threads")
        if isinstance(threads, int) and threads > 0:
            torch.set_num_threads(threads)
        for what, here in (("torch", torch.__version__),):
            if environment.get(what) != here:
                self._notes.append(f"recorded with {what} {environment.get(what)}, and this is {here}")
        self._patch_calls()
        self._patch_loss_functions()
        self._patch_backward()
        _optim.register_optimizer_step_pre_hook(self._before_step)
        atexit.register(self._at_exit)

    # The forward ---------------------------------------------------------------------------------------------

    def _patch_calls(self) -> None:
        original = torch.nn.Module.__call__

        def call(module: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
            if (
                self._depth == 0
                and not self._over
                and module.training
                and torch.is_grad_enabled()
                and in_backward() == -1
            ):
                args, kwargs = self._forward(module, args, kwargs)
            self._depth += 1
            try:
                return original(module, *args, **kwargs)
            finally:
                self._depth -= 1
        torch.nn.Module.__call__ = call

    def _forward(
        self, module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        inner, forwards = unwrap(module), self._box.forwards
        again = self._forwards >= len(forwards)     # without a backward what came was no step: a look at shapes, say
        number = forwards[0 if again else self._forwards]["model"]
        if again and self._losses or self._box.model_of(inner) != number:       # a loss is a module, too
            return args, kwargs
        if again:
            self._forwards = self._targets = 0
        if number not in self._modules:
            inner.zero_grad(set_to_none=True)
            self._modules[number] = inner
            self._origin.names |= {id(p): name for name, p in inner.named_parameters()}
        # Each time: another optimizer of the step may have stepped since, as it had then.
        self._box.load(inner, number)
        if not self._forwards:
            self._begin(inner)
        args, kwargs = self._box.arguments(self._forwards, args, kwargs)
        if any(value is ABSENT for value in (*args, *kwargs.values())):
            self._notes.append("some of what the model was called with could not be kept")
        self._origin.before_forward(args, kwargs)
        self._box.restore_random(self._forwards)
        self._forwards += 1
        return args, kwargs

    def _begin(self, module: torch.nn.Module) -> None:
        say(
            f"replay of step {self._box.step}: the weights, the batch and the random numbers of then "
            f"({self._box.because})"
        )
        if self._options.get("anomaly"):
            torch.autograd.set_detect_anomaly(True)
        if self._options.get("debugger"):
            _stop_in(module.forward)

    # Labels and losses ---------------------------------------------------------------------------------------

    def _patch_loss_functions(self) -> None:
        for name in FUNCTIONS:
            setattr(torch.nn.functional, name, self._with_target(name, getattr(torch.nn.functional, name)))

    def _with_target(self, name: str, original: Any) -> Any:
        def watched(*args: Any, **kwargs: Any) -> Any:
            if self._forwards and not self._over and torch.is_grad_enabled() and in_backward() == -1:
                target = self._next_target(name, args[1] if len(args) > 1 else kwargs.get("target"))
                if target is not None and len(args) > 1:
                    args = args[0], target, *args[2:]
                elif target is not None:
                    kwargs = {**kwargs, "target": target}
                self._origin.compared_with(args[1] if len(args) > 1 else kwargs.get("target"))
            return original(*args, **kwargs)
        return watched

    def _next_target(self, name: str, given: Any) -> torch.Tensor | None:
        if not isinstance(given, torch.Tensor) or given.requires_grad or self._targets >= len(self._labels):
            return None
        function, target = self._labels[self._targets]
        if function != name:
            return None
        self._targets += 1
        return target.to(given.device) if isinstance(target, torch.Tensor) else None

    def _patch_backward(self) -> None:
        original = torch.autograd.backward

        def backward(tensors: Any, *args: Any, **kwargs: Any) -> Any:
            if self._forwards and not self._over:
                losses = (tensors,) if isinstance(tensors, torch.Tensor) else tuple(tensors)
                tensors = losses
                self._losses += [bits(t.cpu()) for t in losses if t.numel() == 1]
                self._origin.before_backward(losses)
                if self._options.get("anomaly"):
                    return self._until_anomaly(original, tensors, args, kwargs)
            return original(tensors, *args, **kwargs)
        torch.autograd.backward = backward

    def _until_anomaly(self, original: Any, tensors: Any, args: Any, kwargs: Any) -> Any:
        """torch says on stderr where the operation was called whose derivative is NaN, and raises."""
        try:
            return original(tensors, *args, **kwargs)
        except RuntimeError as error:
            self._over = True
            say(f"anomaly detection: {error} Above stands where the forward called it.")
            raise SystemExit(SAME) from None

    # The verdict ---------------------------------------------------------------------------------------------

    def _before_step(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        if self._over or self._forwards < len(self._box.forwards):
            return
        if all(p.grad is None for module in self._modules.values() for p in module.parameters()):
            return          # a closure computes them
        self._over = True
        modules = [self._modules[n] for n in sorted(self._modules)]
        for living in living_optimizers():
            self._box.load_optimizer(living, modules)
        self._origin.before_step([p for module in modules for p in module.parameters()])
        raise SystemExit(self._report())

    def _report(self) -> int:
        box, different, equal = self._box, [], 0
        parameters = {n: dict(module.named_parameters()) for n, module in self._modules.items()}
        of_step = {(number, name) for number, name in box.document["about_to_step"]}
        for number, name, kept in box.gradients():
            if of_step and (number, name) not in of_step:
                continue
            here = parameters.get(number, {}).get(name)
            grad = None if here is None or here.grad is None else here.grad.detach().cpu().contiguous()
            if grad is not None and grad.dtype == kept.dtype and grad.shape == kept.shape and bits(grad) == bits(kept):
                equal += 1
            else:
                different.append(name)
        # Those before led to another optimizer, whose model has changed since.
        begin = box.document["losses_before"]
        kept_losses = [loss for of_call in box.document["losses"] for loss in of_call][begin:]
        losses = [None if kept is None else bytes.fromhex(kept["bits"]) == here
                  for kept, here in zip(kept_losses, self._losses[begin:])]
        same = not different and False not in losses and (equal > 0 or True in losses)
        answer = {
            "step": box.step, "because": box.because, "identical": same,
            "losses": [{"recorded": None if kept is None else kept["value"], "identical": verdict}
                       for kept, verdict in zip(kept_losses, losses)],
            "gradients": {"identical": equal, "of": equal + len(different), "different": different},
            "origin": self._origin.record, "notes": self._notes + self._reasons(same)}
        self._answer(answer)
        return SAME if same else DIFFERENT

    def _reasons(self, same: bool) -> list[str]:
        """What could have made a difference."""
        document = self._box.document
        found: list[str] = []
        if same:
            return found
        if not document["targets"] and not document["left_out"]:
            found.append("labels were not seen: no loss function of torch.nn.functional was called, and they may be "
                         "those of another batch")
        if document["world_size"] > 1:
            found.append(f"gradients were averaged over {document['world_size']} processes, and this is one")
        if any(f["changed_since"] for f in document["forwards"]):
            found.append("the batch was written to while the step ran")
        if any(f["absent"] for f in document["forwards"]):
            kinds = sorted({kind for f in document["forwards"] for kind in f["absent"]})
            found.append(f"the model was called with what could not be kept: {', '.join(kinds)}")
        found += [f"left out for the budget: {what}" for what in document["left_out"]]
        return found

    def _answer(self, answer: dict[str, Any]) -> None:
        descriptor = self._options.get("answer", -1)
        if isinstance(descriptor, int) and descriptor >= 0:
            os.write(descriptor, json.dumps(answer, indent=2).encode() + b"\n")
            return
        gradients = answer["gradients"]
        for n, loss in enumerate(answer["losses"]):
            verdict = {True: "the same to the bit", False: "not the same", None: "not recorded"}[loss["identical"]]
            say(f"  loss{f' {n}' if n else ''} {loss['recorded']}: {verdict}")
        if gradients["of"]:
            say(
                f"  gradients: {gradients['identical']} of {gradients['of']} the same to the bit"
                + (
                    f"; not {', '.join(gradients['different'][:3])}"
                    + (", ..." if len(gradients["different"]) > 3 else "")
                    if gradients["different"]
                    else ""
                )
            )
        else:
            say("  gradients: none were kept: the training ended before its optimizer stepped")
        if answer["origin"] is not None:
            say(f"  {answer['origin']['sentence']}")
        for note in answer["notes"]:
            say(f"  {note}")

    def _at_exit(self) -> None:
        if self._over:
            return
        if self._losses and self._forwards == len(self._box.forwards) and not self._box.document["about_to_step"]:
            self._over = True
            code = self._report()       # the training had ended before its optimizer stepped, and so has this one
        else:
            models = ", ".join(
                f"{m['class']} with {len(m['parameters'])} parameters" for m in self._box.document["models"]
            )
            say(f"replay of step {self._box.step}: the command ended after {self._forwards} of "
                f"{len(self._box.forwards)} forwards of the "
                f"step ({models}); it must build the same model and train it")
            code = NOT_REACHED
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _stop_in(forward: Any) -> None:
    """Python's debugger, at the first line of a model's forward, which is about to be called."""
    import pdb
    debugger = pdb.Pdb(nosigint=True)
    code = getattr(getattr(forward, "__func__", forward), "__code__", None)
    lines = (
        sorted({line for _, _, line in code.co_lines() if line and line > code.co_firstlineno})
        if code is not None
        else []
    )
    if code is None or not lines or debugger.set_break(code.co_filename, lines[0], temporary=True):
        say("the model's forward has no line to stop at: the debugger stops where it is called")
        debugger.set_trace(sys._getframe(4))
        return
    say("in the model's forward, with the batch of that step: n and s go on, p NAME looks, c runs to the end")
    # As set_trace does, but nothing is stepped through on the way to that line.
    debugger.reset()
    debugger.botframe = sys._getframe()
    debugger.set_continue()
    sys.settrace(debugger.trace_dispatch)


def arm() -> None:
    """Under `tdbg replay`, when torch has been imported. What cannot be replayed ends the process: nothing else was
    asked for."""
    try:
        Replay(json.loads(os.environ["TDBG_REPLAY"])).arm()
    except (BlackBoxError, OSError, ValueError, KeyError) as error:
        say(f"replay: {error}")
        os._exit(5)
