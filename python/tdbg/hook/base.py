"""What smdebug's hooks have in common: what to save, said in its words, and a script's own values.

A framework's hook (torch.py) says when steps begin and hands tensors over. A hook configures, the plan decides
(src/plan/hook_plan.cc), the run records. Knows no framework.
"""

from __future__ import annotations

import atexit
import glob
import json
import logging
import numbers
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .._capture import Error as CaptureError
from .._capture import Run, hook_defaults, hook_plan, parse_hook
from ..adaptors.guard import Guard
from ..adaptors.plan import write_earlier_steps
from ..adaptors.requests import obey
from ..exceptions import (
    InvalidCollectionConfiguration,
    SMDebugRuntimeError,
    SMDebugTypeError,
    SMDebugValueError,
)
from ..modes import ModeKeys
from ..resume import earlier_steps, take_said
from . import layout, own_values
from .checkpoint_state import (
    LATEST_GLOBAL_STEP_SAVED,
    LATEST_GLOBAL_STEP_SEEN,
    LATEST_MODE_STEP,
    TRAINING_RUN,
    StateStore,
)
from .collection import Collection, CollectionKeys, CollectionManager
from .launched import base_plan
from .reduction_config import ReductionConfig, document_of
from .save_config import SaveConfig
from .singleton import ProcessHook, set_hook

if TYPE_CHECKING:
    from typing_extensions import Self

CONFIG_FILE_PATH_ENV_STR = "SMDEBUG_CONFIG_FILE_PATH"
DEFAULT_SAGEMAKER_CONFIG = "/opt/ml/input/config/debughookconfig.json"
DEFAULT_SAGEMAKER_OUTDIR = "/opt/ml/output/tensors"

logger = logging.getLogger("smdebug")

_FILLED_BY_CALLS = {"scalars", CollectionKeys.SM_METRICS}     # by save_scalar


class BaseHook(ProcessHook):
    """Saves what it is told to in a run directory. Constructing one makes it the process's hook.

    :param out_dir: the run directory, `~` expanded. Under `tdbg run` the launcher's run is used, and `out_dir` becomes
        a link to it. One that holds a finished run is refused.
    :param export_tensorboard, tensorboard_dir: keep what TensorBoard's files are made from (`tdbg export`, `tdbg run`)
    :param dry_run: everything but saving tensors
    :param reduction_config: what is saved instead of values; a collection's own wins
    :param save_config: when; a SaveConfig, a SaveConfigMode, or a dict of modes; a collection's own wins
    :param include_regex: tensors by name; they join the collection `default`
    :param include_collections: names of collections to save, besides those that always are
    :param save_all: every tensor
    :param include_workers: "all", else only the first one saves

    Nothing is on disk before the first step. Configuration that can mean nothing raises, here or in the first step;
    afterwards failures are counted, said once on stderr, and training goes on.
    """

    framework = ""
    _keeps_state = True     # beside the job's checkpoints; not where the framework itself tells the step
    _collection_class = Collection
    _INIT_STEP = -1         # a step is counted when it begins; 0: when it has ended
    GRADIENT_PREFIX, SCALAR_PREFIX = "gradient/", "scalar/"
    INPUT_TENSOR_SUFFIX, OUTPUT_TENSOR_SUFFIX = "_input_", "_output_"

    def __init__(self, out_dir: str | os.PathLike[str] | None = None, export_tensorboard: bool = False,
                 tensorboard_dir: str | None = None, dry_run: bool = False, reduction_config: Any = None,
                 save_config: Any = None, include_regex: str | Sequence[str] | None = None,
                 include_collections: Iterable[str] | None = None, save_all: bool = False,
                 include_workers: str = "one") -> None:
        defaults = json.loads(hook_defaults(self.framework))
        self._launched = os.environ.get("TDBG_RUN") or None
        self.out_dir = self._check_out_dir(out_dir)
        self.export_tensorboard = bool(export_tensorboard) or bool(tensorboard_dir)
        self.tensorboard_dir = tensorboard_dir
        if export_tensorboard and not tensorboard_dir:
            self.tensorboard_dir = os.path.join(self.out_dir, "tensorboard")
        if self.export_tensorboard and not layout.is_on():
            logger.warning("TensorBoard's files are not written by the training itself: tdbg export --to tensorboard")
        self.dry_run = bool(dry_run)
        self.save_all = bool(save_all)
        self.include_workers = include_workers
        self.save_all_workers = str(include_workers) == "all"
        self.reduction_config = (ReductionConfig(save_raw_tensor=True) if reduction_config is None
                                 else ReductionConfig.parse(reduction_config))
        default_save = SaveConfig.from_dict(defaults["save_config"])
        given = SaveConfig.parse(save_config) or default_save
        self.save_config = SaveConfig.from_dict(given.to_json_dict())     # a copy: the caller's stays as it is
        self.save_config.merge_default_save_config(default_save)
        self._default_collections: set[str] = set(defaults["include_collections"])
        self.include_collections = set(include_collections or ()) | self._default_collections
        self.include_regex = [include_regex] if isinstance(include_regex, str) else list(include_regex or [])
        self.collection_manager = CollectionManager(
            self._collection_class(c["name"], c["include_regex"]) for c in defaults["collections"])
        self.collection_manager._collection = self._collection_class
        if self.include_regex:
            self.get_collection(CollectionKeys.DEFAULT).include(self.include_regex)
            self.include_collections.add(CollectionKeys.DEFAULT)
        if self.save_all:
            self.get_collection(CollectionKeys.ALL).include(".*")
            self.include_collections.add(CollectionKeys.ALL)
        self.init_step = self.step = self._INIT_STEP
        self.mode = ModeKeys.GLOBAL
        self.mode_steps = {ModeKeys.GLOBAL: self.step}
        self.last_saved_step: int | None = None
        self.training_run = 0
        self.worker = self.chief_worker = "worker_0"
        self.writer: Any = None
        self.prepared_collections = False
        self._guard = Guard(self.framework + " hook", self._count_error, self._give_up)
        self._run: Any = None
        self._layout: layout.Layout | None = None    # smdebug's own files, where they are wanted
        self._step_base = 0         # of the first step, and of that of each mode
        self._step_base_from = ""   # who said so
        self._mode_step_bases: dict[ModeKeys, int] = {}
        self._states = StateStore() if self._keeps_state else None
        self._go_on()
        self._closed = False
        self._quiet = False         # why nothing is kept any more has been said, or needs no words
        self._open = False          # a step is
        self._due = False           # anything in it
        self._step_mode = self.mode
        # the script's scalars and tensors, of the open step or the next one
        self._own: dict[str, tuple[str, Any, list[str]]] = {}
        self._carried: dict[str, tuple[str, Any, list[str]]] = {}  # its scalars since the last step that was saved
        self._said_at: dict[str, float] = {}    # those of which the script said when they were
        self._ids: dict[Any, int] = {}
        set_hook(self)
        atexit.register(self._at_exit)

    # Configuration --------------------------------------------------------------------------------------------

    def _check_out_dir(self, out_dir: str | os.PathLike[str] | None) -> str:
        if out_dir is None:
            if self._launched:
                return self._launched
            if os.environ.get("TRAINING_JOB_NAME"):
                out_dir = DEFAULT_SAGEMAKER_OUTDIR
            else:
                raise SMDebugRuntimeError("a hook needs out_dir: the directory that is to hold the run")
        out_dir = str(out_dir)
        if out_dir.startswith("s3://"):
            raise SMDebugValueError(f"out_dir is {out_dir}: a training writes locally; give a directory here, and "
                                    "have it shipped")
        out_dir = os.path.abspath(os.path.expanduser(out_dir))
        # The mark in a run of ours only says that its files are all there, also after a training that was killed.
        marked = (os.path.exists(os.path.join(out_dir, "training_job_end.ts"))
                  and not os.path.exists(os.path.join(out_dir, "run.json")))
        if not self._launched and (marked or glob.glob(f"{glob.escape(out_dir)}/*/worker_*/ended.json")):
            raise SMDebugRuntimeError(f"{out_dir} holds a run that has ended; choose another directory, or remove it")
        return out_dir

    @classmethod
    def create_from_json_file(cls, json_file_path: str | os.PathLike[str] | None = None,
                              default_values: dict[str, Any] | None = None) -> Self:
        """From smdebug's JSON: the path given, else $SMDEBUG_CONFIG_FILE_PATH, else where SageMaker puts it.

        :param default_values: save parameters ({"save_interval": 10}) that hold where the file sets none
        :raises FileNotFoundError: no such file
        :raises json.JSONDecodeError: not JSON
        :raises SMDebugValueError: a value that means nothing; the message names the key
        """
        path = json_file_path or os.environ.get(CONFIG_FILE_PATH_ENV_STR) or DEFAULT_SAGEMAKER_CONFIG
        with open(path, encoding="utf-8") as file:
            text = file.read()
        given = json.loads(text)  # also for its error, which says where
        if default_values:
            given["HookParameters"] = {**default_values, **(given.get("HookParameters") or {})}
            text = json.dumps(given)
        try:
            document, warnings = parse_hook(text, str(path), cls.framework)
        except CaptureError as error:
            raise SMDebugValueError(str(error)) from None
        for warning in warnings:
            logger.warning("%s", warning)
        config = json.loads(document)
        reductions = config["reduction_config"]
        hook = cls(out_dir=config["out_dir"] or (None if os.environ.get("TDBG_RUN") else DEFAULT_SAGEMAKER_OUTDIR),
                   dry_run=config["dry_run"], save_all=config["save_all"], include_workers=config["include_workers"],
                   include_regex=config["include_regex"], include_collections=config["include_collections"],
                   reduction_config=reductions, save_config=SaveConfig.from_dict(config["save_config"]),
                   **layout.tensorboard(config))
        for c in config["collections"]:
            collection = hook.collection_manager.get(c["name"])
            for pattern in c["include_regex"]:
                if pattern not in collection.include_regex:
                    collection.include(pattern)
            if any(c["save_config"].values()):
                collection.save_config = c["save_config"]
            collection.reduction_config = c["reduction_config"]
            collection.save_histogram = c["save_histogram"]
        return hook

    hook_from_config = create_from_json_file

    def get_collection(self, name: str, create: bool = True) -> Collection:
        """The collection of that name, to be changed before the first step; created where it is not there."""
        collection = self.collection_manager.get(name, create)
        if collection.save_config is None:
            # So that `hook.get_collection("losses").save_config.end_step = 0` works, which guides tell people.
            collection.save_config = SaveConfig.from_dict(self.save_config.to_json_dict())
        return collection

    def get_collections(self) -> dict[str, Any]:
        return self.collection_manager.get_collections()

    def add_collection(self, collection: Collection) -> None:
        if not isinstance(collection, Collection):
            raise SMDebugTypeError(f"add_collection({collection!r}): a Collection is accepted")
        self.collection_manager.add(collection)

    def has_default_hook_configuration(self) -> bool:
        return self.include_collections == self._default_collections

    has_default_configuration = has_default_hook_configuration

    def _document(self) -> dict[str, Any]:
        return {
            "framework": self.framework, "out_dir": self.out_dir, "dry_run": self.dry_run,
            "save_all": self.save_all, "include_workers": str(self.include_workers),
            "export_tensorboard": self.export_tensorboard, "tensorboard_dir": self.tensorboard_dir or "",
            "include_regex": [], "include_collections": sorted(self.include_collections & set(self.get_collections())),
            "reduction_config": document_of(self.reduction_config),
            "save_config": self.save_config.to_json_dict(),
            "collections": [{"name": c.name, "include_regex": c.include_regex, "tensor_names": sorted(c.tensor_names),
                             "reduction_config": document_of(c.reduction_config),
                             "save_config": {} if c.save_config is None else c.save_config.to_json_dict(),
                             "save_histogram": c.save_histogram} for c in self.get_collections().values()],
        }

    def _prepare(self) -> None:
        """Once, at the first step: what the collections say by then holds. Raises on what can mean nothing."""
        if self.prepared_collections:
            return
        known = {c["name"] for c in json.loads(hook_defaults(self.framework))["collections"]}
        self._settle_collections()
        for name in sorted(self.include_collections - set(self.get_collections()) - _FILLED_BY_CALLS):
            logger.warning("include_collections names %r, and there is no such collection: "
                           "get_collection(%r).include(...) "
                           "says what is in it; there are %s", name, name, ", ".join(sorted(self.get_collections())))
        for c in self.get_collections().values():
            if c.name not in known and not c.include_regex and not c.tensor_names:
                raise InvalidCollectionConfiguration(c.name)
        try:
            self._plan_text = hook_plan(json.dumps(self._document()), base_plan(self._launched))
        except CaptureError as error:
            raise SMDebugValueError(str(error)) from None
        self._plan = json.loads(self._plan_text)
        for c in self.get_collections().values():
            if c.save_config is None:
                c.save_config = SaveConfig.from_dict(self.save_config.to_json_dict())
            else:
                c.save_config.merge_default_save_config(self.save_config)
            if c.reduction_config is None:
                c.reduction_config = self.reduction_config
        self.prepared_collections = True

    def _settle_collections(self) -> None:
        """What a framework's collections know only now: names of layers."""

    # Modes and steps ------------------------------------------------------------------------------------------

    def _go_on(self) -> None:
        """A job that is started again counts on from the step that the script says, or of its last checkpoint."""
        said = take_said()
        if said is not None:
            found = earlier_steps(self._launched or self.out_dir, self._rank()[0], write_earlier_steps).behind(said)
            self._step_base, self._step_base_from = found.step, "script"
            self._mode_step_bases = {ModeKeys[mode]: step for mode, step in found.modes.items()}
            self.init_step = self.step = found.step + self._INIT_STEP
            self.mode_steps = {ModeKeys.GLOBAL: self.step}
            self.mode_steps.update((m, base + self._INIT_STEP) for m, base in self._mode_step_bases.items() if base)
            return
        if (state := self._states.get_last_saved_state() if self._states else None) is None:
            return
        self.init_step = self.step = state[LATEST_GLOBAL_STEP_SEEN]
        self.last_saved_step = state.get(LATEST_GLOBAL_STEP_SAVED)
        self.training_run = state.get(TRAINING_RUN, 0) + 1
        self.mode_steps = {ModeKeys.GLOBAL: self.step}
        for name, step in state[LATEST_MODE_STEP].items():
            if name in ModeKeys.__members__ and name != "GLOBAL":
                self.mode_steps[ModeKeys[name]] = step
        self._step_base, self._step_base_from = self.step - self._INIT_STEP, "metadata.json"
        # A mode that the state does not know starts from the global step, as in smdebug.
        self._mode_step_bases = {mode: self.mode_steps.get(mode, self.step) - self._INIT_STEP for mode in ModeKeys
                                 if mode is not ModeKeys.GLOBAL}

    def _note_checkpoint(self) -> None:
        if self._states is None or not self._states.is_checkpoint_updated():
            return
        self._states.update_state({
            TRAINING_RUN: self.training_run, LATEST_GLOBAL_STEP_SAVED: self.last_saved_step,
            LATEST_GLOBAL_STEP_SEEN: self.step,
            LATEST_MODE_STEP: {mode.name: step for mode, step in self.mode_steps.items()}})

    def set_mode(self, mode: ModeKeys) -> None:
        """The mode of the steps from the next one on."""
        if not isinstance(mode, ModeKeys):
            raise SMDebugValueError(f"set_mode({mode!r}): one of {', '.join(map(str, ModeKeys))} is accepted")
        self.mode = mode
        self.mode_steps.setdefault(mode, self.init_step)

    def _begin_step(self) -> bool:
        """Closes the open step, opens the next one of the current mode. True if anything is due in it."""
        self._end_step()
        if self._closed:            # it gave up
            return False
        self._note_checkpoint()
        self._due = self._run.begin_step(self.mode.value)
        self._step_mode = self.mode
        self._open = True
        self.step = self._run.global_step
        self.mode_steps[self.mode] = self._run.mode_step(self.mode.value)
        self.mode_steps[ModeKeys.GLOBAL] = self.step
        return self._due

    def _end_step(self, last: bool = False) -> None:
        if not self._open:
            return
        # What cannot be kept of the script's own values must not keep the step open, and the next one from beginning.
        self._watched("a script's own values", self._put_own, last)
        if not self._open:          # that was one failure too many
            return
        self._open = self._due = False
        self._run.end_step()
        while (request := self._run.take_request()) is not None:
            obey(self._run, request, rank=self._rank())

    # A script's own values ------------------------------------------------------------------------------------

    def save_scalar(self, name: str, value: Any, sm_metric: bool = False, timestamp: Any = None) -> None:
        """One number, as `scalar/<name>`, in the step that is open (before the first: in that one).

        The last one of a step counts. In steps in which nothing else is saved it is a number of the run (`tdbg.open`
        shows it) and no reason for smdebug's trial to list the step: that has it in the next step that is saved, or in
        the last one.

        :param timestamp: when it was, in seconds since 1970, for smdebug's files; default: when the step was
        """
        number = np.asarray(self._to_numpy(value))
        if number.size != 1 or number.dtype.kind not in "biuf":
            raise SMDebugTypeError(f"save_scalar({name!r}): a single number is accepted, this is "
                                   f"{own_values.described(number)}")
        if timestamp is not None and (isinstance(timestamp, bool) or not isinstance(timestamp, numbers.Real)):
            raise SMDebugTypeError(f"save_scalar({name!r}): timestamp is seconds since 1970, this is {timestamp!r}")
        if self._still_open("save_scalar"):
            self._keep("scalar/" + name, "scalar", number.reshape(1), ["sm_metrics" if sm_metric else "scalars"])
            self._said_at.pop("scalar/" + name, None)
            if timestamp is not None:
                self._said_at["scalar/" + name] = float(timestamp)

    def save_tensor(self, tensor_name: str, tensor_value: Any,
                    collections_to_write: str | Iterable[str] = CollectionKeys.DEFAULT) -> None:
        """A tensor of the script's, in the step that is open, whatever the schedules say: it asks for it here and now.

        The last one of a name and step counts. What is no array of numbers or truth values is passed over with a
        warning.
        """
        names = [collections_to_write] if isinstance(collections_to_write, str) else list(collections_to_write)
        self._save(tensor_name, tensor_value, names)

    def _save(self, tensor_name: str, tensor_value: Any, names: Any) -> None:
        try:
            array = np.asarray(self._to_numpy(tensor_value))
        except SMDebugTypeError:
            raise
        except (TypeError, ValueError) as error:    # sparse; lists of different lengths
            logger.warning("save_tensor(%r): a %s cannot be kept: %s", tensor_name, type(tensor_value).__name__, error)
            return
        if array.dtype.kind not in "biufc" or not array.size:
            logger.warning("save_tensor(%r): %s cannot be kept", tensor_name, own_values.described(array))
            return
        if self._still_open("save_tensor"):
            for name in names:
                self.collection_manager.create_collection(name).add_tensor_name(tensor_name)
            self._keep(tensor_name, "", array, names)

    def _keep(self, name: str, kind: str, array: Any, collections: list[str]) -> None:
        self._own[name] = kind, own_values.kept(array), collections

    def _to_numpy(self, value: Any) -> Any:
        return value

    def _still_open(self, what: str) -> bool:
        if self._closed and not self._quiet:
            self._quiet = True      # scripts call at every step
            logger.warning("%s after close(): not kept", what)
        return not self._closed

    def _put_own(self, last: bool = False) -> None:
        """What save_scalar and save_tensor left, into the open step.

        :param last: no other will come
        """
        own, self._own = self._own, {}
        if not own and not self._carried:
            return
        scalars = [name for name, (kind, *_) in own.items() if kind == "scalar"]
        saved = last or len(scalars) < len(own) or self._saves_this_step()
        for name in scalars:
            self._carried[name] = own.pop(name)
            if not saved:
                _, array, collections = self._carried[name]
                ident = self._id((name, "number"), lambda: self._run.define_scalar(name, collections[0]))
                self._run.put_scalars([ident], [float(array[0])])
        if saved:
            own |= self._carried
            self._carried = {}
            if self._said_at:
                self._run.put_context("scalar_timestamps", json.dumps(self._said_at))
                self._said_at = {}
        for name, (kind, array, collections) in own.items():
            ident = self._id((name, array.dtype.str, array.ndim), lambda: self._run.define(
                name, name, kind, "", array.dtype.name, list(array.shape), kind != "scalar", -1, [], collections, True))
            strides = [s // array.itemsize for s in array.strides]
            self._run.put_ptr(ident, array.ctypes.data, array.dtype.name, list(array.shape), strides, 0, 0)

    def _id(self, key: Any, make: Callable[..., Any]) -> int:
        ident = self._ids.get(key)
        if ident is None:
            ident = self._ids[key] = make()
        return ident

    # Questions ------------------------------------------------------------------------------------------------

    def _saves_this_step(self) -> bool:
        return bool(self._collections_due(self._step_mode))     # the script may have set the next one's mode already

    def _collections_due(self, mode: ModeKeys | None = None) -> list[Collection]:
        if not self.prepared_collections:
            return []
        everything = CollectionKeys.ALL in self.include_collections
        mode = mode or self.mode
        evaluates = mode in (ModeKeys.EVAL, ModeKeys.PREDICT)
        due = []
        for c in self.get_collections().values():
            if not everything and c.name not in self.include_collections:
                continue
            if evaluates and c.name in (CollectionKeys.GRADIENTS, CollectionKeys.OPTIMIZER_VARIABLES):
                continue
            # One that was made since, as save_tensor does, says nothing of it, or not of every mode.
            config = (c.save_config or self.save_config).mode_save_configs.get(mode) or self.save_config[mode]
            if config.should_save_step(self.mode_steps.get(mode, self.init_step)):
                due.append(c)
        return due

    def _asks_for_numbers(self) -> bool:
        """May the plan want one output of a module and not another? A pattern of one's own may name any number of them
        (`conv_output_3`); those of built-in collections take all outputs or none."""
        named = {c["name"] for c in self._plan["collections"] if c.get("keep") and c.get("include_regex")}
        return bool(named - {"weights", "biases", "gradients", "losses"})

    def should_save_tensor_or_collection(self, tensor_name: str, collection_name: str) -> bool:
        """Is the collection saved in this step, or any collection that holds the tensor? False before the first."""
        return any(c.name == collection_name or c.matches(tensor_name) for c in self._collections_due())

    def export_collections(self) -> None:
        """Nothing to do: what a run keeps, and under which collections, is in it from the first step on."""

    def record_trace_events(self, timestamp: Any, training_phase: str = "", op_name: str = "", phase: str = "X",
                            duration: int = 1, **kwargs: Any) -> None:
        """Accepted, not kept: system profiling is no business of a run's (docs/migrating-from-smdebug.md)."""

    # Failures -------------------------------------------------------------------------------------------------

    def _watched(self, site: str, function: Callable[..., Any], *args: Any) -> None:
        """Calls a part of ours from one of the framework's calls: what it raises is counted and said once."""
        try:
            function(*args)
        except BaseException as error:
            self._guard.failed(site, error)

    def _count_error(self, text: str) -> None:
        if self._run is not None:
            self._run.count_dropped("adaptor_error", 1, text)

    def _give_up(self) -> None:
        self._due = self._open = False
        self._closed = self._quiet = True
        if self._run is not None:
            self._run.end("exception", "the hook failed too often")

    # The end --------------------------------------------------------------------------------------------------

    def _ensure_run(self) -> bool:
        """Opens the run; False where this process writes none."""
        if self._run is not None:
            return True
        if self._closed:
            return False
        rank, world_size = self._rank()
        self.worker = f"worker_{rank}"
        self._prepare()
        if self._plan["include_workers"] >= 0:
            if rank != self._plan["include_workers"]:
                self._closed = self._quiet = True
                return False
            world_size = 1
        directory = self._launched or self.out_dir
        self._run = Run.open(directory=directory, plan_json=self._plan_text, rank=rank, world_size=world_size,
                             adaptor=self._adaptor(), command=list(sys.orig_argv), step_base=self._step_base,
                             step_base_from=self._step_base_from,
                             mode_step_bases=[(mode.value, base) for mode, base in self._mode_step_bases.items()],
                             sibling_if_locked=bool(self._launched), among_other_files=not self._launched)
        if self._run.global_step + 1 != self._step_base:    # laid behind earlier attempts, or as another rank began
            self.mode_steps = {mode: self._run.mode_step(mode.value) + 1 + self._INIT_STEP for mode in ModeKeys}
            self.init_step = self.step = self.mode_steps[ModeKeys.GLOBAL]
        if self._launched and rank == 0:
            self._link(self._run.directory)
        if layout.is_on() and rank == max(0, self._plan["include_workers"]):
            self._layout = layout.Layout(self._run.directory, self._run.attempt, world_size, self.tensorboard_dir,
                                          launched=bool(self._launched))
        return True

    def _link(self, directory: str) -> None:
        """Under a launcher the run is where the launcher watches it; programs look for it in out_dir."""
        if os.path.realpath(self.out_dir) == os.path.realpath(directory):
            return
        try:
            if os.path.isdir(self.out_dir) and not os.path.islink(self.out_dir) and not os.listdir(self.out_dir):
                os.rmdir(self.out_dir)
            elif os.path.islink(self.out_dir):
                os.unlink(self.out_dir)
            os.makedirs(os.path.dirname(self.out_dir), exist_ok=True)
            os.symlink(directory, self.out_dir)
        except OSError as error:
            logger.warning("the run is in %s, and out_dir could not be made a link to it: %s", directory, error)

    def _rank(self) -> tuple[int, int]:
        return 0, 1

    def _adaptor(self) -> str:
        return self.framework

    def close(self, reason: str = "completed", message: str = "") -> None:
        """Ends the run. Later calls do nothing."""
        if self._closed:
            return
        try:
            if not self._open and (self._own or self._carried):
                self._watched("a last step", lambda: self._ensure_run() and self._begin_step())
            self._end_step(last=True)
        finally:
            self._closed = True
            # it would keep the hook, and what it watches, until the process ends
            atexit.unregister(self._at_exit)
            if self._run is not None:
                self._run.end(reason, message)
            if self._layout is not None:
                self._layout.finish()

    cleanup = close

    def _cleanup(self) -> None:
        """smdebug's scripts call this one."""
        self.close()

    def _get_worker_name(self) -> str:
        return f"worker_{self._rank()[0]}"

    def _at_exit(self) -> None:
        error = getattr(sys, "last_value", None)
        try:
            if error is not None and not hasattr(sys, "ps1"):
                self.close("exception", f"{type(error).__name__}: {error}")
            else:
                self.close()
        except Exception as failure:
            logger.error("while ending the run: %s", failure)

    def __getstate__(self) -> dict[str, Any]:
        return {}  # models that carry hooks are saved; what watches them is not

    def __repr__(self) -> str:
        return (f"<{type(self).__module__}.{type(self).__name__} {self.out_dir}: "
                f"{', '.join(sorted(self.include_collections))}>")
