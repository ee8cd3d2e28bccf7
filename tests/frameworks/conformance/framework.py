"""What the conformance suite must know of a framework. Nothing here imports a framework or tdbg: the class that fills it
in is also used by child.py, in processes that have not heard of tdbg."""

from __future__ import annotations

import contextlib
import dataclasses
import pathlib
import pickle
import sys

#: The built-in collections of tensors. Every framework has each of them, or says why it cannot.
COLLECTIONS = ("weights", "biases", "gradients", "losses", "metrics", "outputs", "inputs", "optimizer_variables", "labels",
               "predictions", "hyperparameters", "feature_importance", "average_shap", "full_shap", "trees")

STEPS = 4
CHILD = pathlib.Path(__file__).with_name("child.py")


@dataclasses.dataclass
class Step:
    """One step as the training itself saw it: its mode ("TRAIN", "EVAL", "PREDICT") and, under the name that the adaptor
    must give it, each tensor as a NumPy array: a copy that the training made by the framework's own means.
    """

    mode: str
    values: dict


@dataclasses.dataclass
class Trained:
    """What one training did.

    :ivar steps: in the order of global steps, those of evaluation where they fall
    :ivar result: everything that the training leaves behind (weights, history, state of the random numbers), as bytes.
        The same training again gives the same bytes, or nothing can be said of what an adaptor changes.
    :ivar final: name -> array: the weights after the last update; empty where the adaptor records no end
    """

    steps: list
    result: bytes
    final: dict = dataclasses.field(default_factory=dict)


class Framework:
    """Filled in by tests/frameworks/NAME/framework.py. Everything but `train` has a default."""

    #: As in the table of docs/frameworks.md.
    title = ""
    #: Folder of python/tdbg/adaptors.
    adaptor = ""
    #: Tells the record of what was verified from others of the same folder, where each has a process of its own.
    record = ""
    #: Collection -> the names that train() must give it: literally, as the specification has them.
    names: dict = {}
    #: Collections recorded when nothing is configured.
    default: tuple = ()
    #: What the framework cannot have -> why; the table says so. A collection: the suite then checks that it is really not
    #: there. "forked children": a forked child that comes back into the framework never ends, also without us; the suite
    #: then forks children that stay out of it.
    absent: dict = {}
    #: Regular expression of names -> absolute tolerance: values that take arithmetic. All others are equal to the last bit.
    approximate: dict = {}
    #: A second training in the same process: "same run" (its steps follow) or "own run" (DIR-2, DIR-3 ...).
    second = "same run"
    #: Attached while a training is under way, the adaptor sees it from the next "step" or from the next "training".
    late = "step"
    #: Regular expression of names that the first step after a late attach does not have.
    late_misses = "$^"
    #: [(owner, attribute)]: what the adaptor replaces. After the watch is over they are what they were.
    replaced: tuple = ()

    #: The class of its models. What the watch of one has ended is not kept alive by it.
    model_class: type = None

    #: Does it train in a Python? The table then names that, too.
    python = True

    def version(self):
        """"2.13.0": of the framework."""
        raise NotImplementedError

    def train(self, steps=STEPS, after_step=None) -> Trained:
        """Trains a tiny seeded model for so many TRAIN steps, in this process, from scratch; some EVAL steps may follow.

        :param after_step: called with 0, 1 ... after each TRAIN step's update, from code of the script (a loop, a
            callback). It may raise, and the exception must come out of `train` as it is.
        """
        raise NotImplementedError

    def train_untrained(self):
        """Trains STEPS steps with weights that no gradient changes: {name: the arrays that each step should find}.

        The first name is of one that stays what it is, the second of one that the script itself changes after step 1. Others
        are running averages; the script makes one of them infinite after step 1. None: there are no such weights, or
        the suite sees them in another framework of the same adaptor.
        """

    def train_again(self) -> list:
        """Two trainings, one after the other. One Trained per run that this makes."""
        first, second = self.train(), self.train()
        if self.second == "own run":
            return [first, second]
        renamed = [Step(s.mode, {self.second_name(k): v for k, v in s.values.items()}) for s in second.steps]
        return [Trained(first.steps + renamed, second.result)]

    def second_name(self, name):
        """What the second training's tensor is called where both are in the same run."""
        return name

    def train_two(self) -> list:
        """Two models at once. One Trained per run that this makes: two models of one step are one run."""
        raise NotImplementedError

    def train_around_a_teacher(self) -> Trained | None:
        """A loop of the script's own in which a model that nothing trains runs in evaluation mode between the forward and the
        backward of the one that is trained: what it does is no step. None: the loop is not the script's."""
        return None

    def train_in_turns(self) -> Trained | None:
        """Two models, the second of which is updated in every second iteration: an iteration is a step. None: as above."""
        return None

    @contextlib.contextmanager
    def attached(self, directory, config):
        """Records into `directory`; a framework that is no Python module says otherwise how."""
        import tdbg
        with tdbg.attach(framework=self.adaptor, dir=str(directory), config=config) as run:
            yield run

    def command(self, out, scenario):
        """Trains in a process of its own, which does not know of tdbg and leaves what it saw in the file `out`: child.py."""
        return [sys.executable, str(CHILD), f"{type(self).__module__}:{type(self).__name__}", out, scenario]

    def left(self, out) -> Trained:
        """What such a process left."""
        with open(out, "rb") as file:
            return pickle.load(file)
