# Made by tools/stubs.py with nanobind 3.1.0. Change python/src, and make it again.
from collections.abc import Sequence
from typing import Annotated, Final

import numpy
from numpy.typing import NDArray


class Error(RuntimeError):
    pass

def fingerprint(pointer: int, bytes: int) -> int:
    """
    Mark of host memory; see the batch_fingerprint series. The caller keeps the memory alive.
    """

def fingerprint_if_there(pointer: int, bytes: int) -> int | None:
    """
    The same of mapped memory, whose file may have been cut short; None where its end is gone.
    """

def compare_elements(measure: int, width: float, given: int, target: int, is_double: bool, rows: int, columns: int, given_strides: tuple[int, int], target_strides: tuple[int, int]) -> list[float]:
    """
    Rows by columns in host memory: [mean, std, between of targets, the same of predictions, correlation, guess, loss].
    """

def compare_classes(logits: int, is_double: bool, rows: int, classes: int, strides: tuple[int, int], labels: int, label_stride: int, ignored: int, whole: bool) -> list[float]:
    """
    Rows by classes in host memory: [between, std of logits], and where all labels are classes [between of targets, correlation, guess, loss] of probabilities; [] of fewer than two rows.
    """

def is_readable(pointer: int, bytes: int) -> bool:
    """
    Can all of it be read without a signal? Takes about as long as reading it.
    """

def redacted(text: str) -> str:
    """
    Without what looks like a secret in it: the rule by which logs are masked.
    """

class TensorReader:
    """Reads tensors of a framework through DLPack's exchange table."""

    def __init__(self, tensor_type: type, parameter_type: type) -> None: ...

    def batch(self, tensor: object) -> tuple[int, int] | None:
        """
        (length of the first axis, fingerprint), or None: no host tensor in C order.
        """

    def number(self, tensor: object) -> NumberCopy | None:
        """A NumberCopy of a host tensor of no axes and floating point, or None."""

class NumberCopy:
    """The value that a tensor of one element had."""

    @property
    def dtype(self) -> str: ...

    @property
    def address(self) -> int:
        """Of its bytes. Good as long as the object lives."""

    @property
    def value(self) -> float: ...

    @property
    def bytes(self) -> bytes: ...

class ParameterBatch:
    """Where an optimizer's parameters and their gradients are."""

    def __init__(self, reader: TensorReader, parameters: list, weight_ids: object, gradient_ids: object) -> None: ...

    ODD: Final[int] = ...
    """(arg: object, /) -> int"""

    MOVED: Final[int] = ...
    """(arg: object, /) -> int"""

    def gather(self, parameters: list) -> int: ...

    def absent(self) -> list[int]: ...

    @property
    def ids(self) -> list[int]: ...

    @property
    def addresses(self) -> list[int]: ...

class TensorMark:
    """What is known of the tensor at one place of a model."""

    def __init__(self, turn: int) -> None: ...

    def expect(self, reader: TensorReader, tensor: object, id: int) -> bool:
        """
        Tensors like this one are recorded as `id`. False: it cannot be read here.
        """

    def forget(self) -> bool:
        """
        What comes next counts as changed. Was anything seen since the last time?
        """

WORTH_A_LOOK: int = 2

def look_again(reader: TensorReader, marks: list, tensors: list, call: int, every: int) -> tuple:
    """
    (ids, addresses, is each unchanged?; positions of what needs another way)
    """

class TensorSlot:
    """A name whose tensors arrive one by one, such as a module's output."""

    def __init__(self, reader: TensorReader) -> None: ...

    def remember(self, id: int, tensor: object) -> None: ...

    def match(self, tensor: object) -> int | None:
        """The id under which put_tensor would record it, or None."""

class GraphCapture:
    """Numbers of the operations that record tensors of TensorFlow's graphs."""

    def __init__(self, run: Run) -> None: ...

    @staticmethod
    def install(library: str) -> str:
        """
        Registers the operation, once; why that cannot be done, or an empty text.
        """

    OPERATION: Final[str] = ...
    """(arg: object, /) -> str"""

    def tensor(self, name: str, short_name: str, kind: str, module_kind: str, variable_shape: bool, unit_axis: int, collections: Sequence[str], sub: int = 0) -> int: ...

    def number(self, series: int) -> int: ...

    def batch(self) -> int: ...

    def begin(self) -> None:
        """Operations put into the run's open step, until `end`."""

    def end(self) -> tuple[int | None, str, list[int]] | None:
        """
        (fingerprint, name of the dtype, shape) of the step's batch, or None. The fingerprint of an empty one is None.
        """

class DeviceRows:
    """A batch that has arrived from a GPU."""

    @property
    def ids(self) -> list[int]: ...

    def value(self, position: int) -> float | None:
        """Of a small tensor the first value; None if it was absent."""

    def summary(self, position: int) -> list[float] | None:
        """The 15 numbers, or None of one that was absent or travelled as it is."""

    def values(self, position: int) -> bytes | None:
        """The bytes of a small tensor."""

    @property
    def place(self) -> tuple[int, int]: ...

class DeviceLane:
    """Statistics of tensors on NVIDIA's GPUs, by kernels of our own."""

    def __init__(self) -> None: ...

    ARRIVED: Final[int] = ...
    """(arg: object, /) -> int"""

    UNDER_WAY: Final[int] = ...
    """(arg: object, /) -> int"""

    def put(self, device: int, stream: int, ids: object, addresses: object, dtypes: object, shapes: Sequence[Sequence[int]], statistics: Sequence[tuple[int, str, int, int, int, int]], sub: int = 0, point: int = 0) -> tuple[str, int, int]:
        """
        (why it was refused, or an empty text; ticket; graph, if it was launched into a capture)
        """

    def prepare_capture(self, device: int) -> None: ...

    def before_replay(self, device: int, stream: int) -> None: ...

    def replayed(self, graph: int) -> int:
        """The ticket of one more replay of a graph."""

    def look(self, ticket: int) -> int: ...

    def take(self, ticket: int) -> DeviceRows | None:
        """DeviceRows; None where they are lost, or under way."""

    def drop(self, ticket: int) -> None: ...

    def put_raw(self, device: int, stream: int, addresses: object, sizes: object) -> list[tuple[str, int]]:
        """One (why it was refused, or an empty text; ticket) for each."""

    def look_raw(self, ticket: int) -> int: ...

    def raw_address(self, ticket: int) -> int:
        """
        Where the bytes lie until `release_raw`; 0 where they have not arrived.
        """

    def release_raw(self, ticket: int) -> None: ...

    def leave(self) -> None: ...

    @property
    def raw_device_bytes(self) -> int: ...

    @property
    def raw_pinned_bytes(self) -> int: ...

    @property
    def trouble(self) -> str: ...

    @property
    def device_bytes(self) -> int: ...

    @property
    def pinned_bytes(self) -> int: ...

def dtype_number(name: str) -> int:
    """tdbg/tensor.h's number of an element type; 0 of an unknown one."""

def hook_defaults(framework: str) -> str:
    """A hook of smdebug with nothing configured, as JSON."""

def parse_hook(text: str, source: str, framework: str) -> tuple[str, list[str]]:
    """
    smdebug's configuration file: (the hook as JSON, warnings). ValueError where it is no JSON.
    """

def hook_plan(hook_json: str, plan_json: str = '') -> str:
    """
    What a hook saves, on top of a plan (none: nothing of its own): plan.json's text.
    """

class Forecast:
    """
    What will be due in a step, before the run has begun it, by a plan (plan.json's text). It may say yes where the run says no, never the other way round.
    """

    def __init__(self, plan_json: str) -> None: ...

    @property
    def more(self) -> bool:
        """A request for more detail holds: everything may be due."""

    @more.setter
    def more(self, arg: bool, /) -> None: ...

    @property
    def look_every(self) -> int:
        """As Run.look_every was told."""

    @look_every.setter
    def look_every(self, arg: int, /) -> None: ...

    @property
    def always(self) -> bool:
        """Statistics are taken in every step of every mode."""

    def due(self, mode: int, mode_step: int) -> bool:
        """Is anything due in this step of this mode?"""

    def raw_due(self, mode: int, mode_step: int) -> bool:
        """Are raw values of any collection?"""

class Run:
    @staticmethod
    def open(directory: str = '', plan_json: str = '', rank: int = 0, world_size: int = 1, attempt: int = -1, step_base: int = 0, adaptor: str = '', command: Sequence[str] = [], sibling_if_locked: bool = True, among_other_files: bool = False, mode_step_bases: Sequence[tuple[int, int]] = [], first_sibling: int = 1, step_base_from: str = '', optimizer_step: int = -1) -> Run: ...

    NOT_WANTED: Final[int] = ...
    """(arg: object, /) -> int"""

    @property
    def directory(self) -> str: ...

    @property
    def attempt(self) -> int: ...

    @property
    def step_base_from(self) -> str: ...

    @staticmethod
    def next_attempt(directory: str = '', rank: int = 0) -> int:
        """
        The attempt in which this worker would record if it opened the run now; -1: beside that run.
        """

    @property
    def global_step(self) -> int: ...

    def share_threads(self, threads: int) -> None: ...

    def mode_step(self, mode: int) -> int: ...

    def plan(self) -> str: ...

    def wants(self, name: str, kind: str, module_kind: str = '', element_count: int = 0, collections: Sequence[str] = []) -> bool: ...

    def define(self, name: str, short_name: str, kind: str, module_kind: str, dtype: str, shape: Sequence[int], variable_shape: bool = False, unit_axis: int = -1, aliases: Sequence[str] = [], collections: Sequence[str] = [], always: bool = False, whole_shape: Sequence[int] = [], part_begin: Sequence[int] = []) -> int: ...

    def define_scalar(self, name: str, collection: str = '') -> int: ...

    def look_every(self, every: int) -> None:
        """
        Statistics at one step in so many, from the next one on: more would take too much of the training's time.
        """

    def begin_step(self, mode: int) -> bool: ...

    def due(self, id: int) -> bool: ...

    def raw_due(self, id: int, mode: int, mode_step: int) -> bool:
        """Are raw values of it due at that step of the mode?"""

    def put_rows(self, rows: DeviceRows) -> None:
        """What a DeviceLane took of a batch."""

    def put_many(self, ids: object, ptrs: object, sub: int = 0, point: int = 0, unchanged: object | None = None) -> bool:
        """
        `unchanged`: one truth value for each id; tdbg/run.h says what it promises. Was anything that it looked at NaN or infinite?
        """

    def put_batch(self, batch: ParameterBatch, ids: object, ptrs: object, sub: int = 0, point: int = 0) -> bool: ...

    def put_tensor(self, slot: TensorSlot, tensor: object, sub: int = 0) -> bool: ...

    def put_ptr(self, id: int, ptr: int, dtype: str | int, shape: Sequence[int], strides: Sequence[int], sub: int = 0, point: int = 0) -> None: ...

    def put_sparse(self, id: int, ptr: int, dtype: str | int, values: int, elements: int, sub: int = 0, point: int = 0) -> None:
        """
        A tensor of so many elements, of which all but these `values` (in C order, each once) are 0.
        """

    def put_raw(self, id: int, ptr: int, dtype: str | int, shape: Sequence[int], strides: Sequence[int], sub: int = 0, point: int = 0) -> None:
        """
        The bytes alone, where they are due, of a tensor whose statistics came from a device.
        """

    def put_array(self, id: int, array: Annotated[NDArray, dict(writable=False)], sub: int = 0, point: int = 0) -> None: ...

    def put_summaries(self, ids: object, summaries: Annotated[NDArray[numpy.float64], dict(shape=(None, 15), order='C', device='cpu', writable=False)], sub: int = 0, point: int = 0) -> None: ...

    def statistics(self, id: int, unit_axis: int, rank: int) -> list: ...

    def put_statistic(self, id: int, statistic: str, elements: int, samples: int, values: Sequence[float], sub: int = 0, point: int = 0) -> None: ...

    def put_scalars(self, ids: object, values: Sequence[float], sub: int = 0) -> None: ...

    def put_context(self, topic: str, json: str) -> None: ...

    def end_step(self, skipped: bool = False) -> int: ...

    def cancel_step(self) -> None:
        """
        The open step is none after all, where nothing was put in it; its number is the next one's.
        """

    def leave_step(self) -> None:
        """
        The open step is none, as no update came of it: its tensors are not recorded, its scalars are the end's.
        """

    def begin_end(self) -> None: ...

    def end(self, reason: str, message: str = '') -> None: ...

    def take_request(self) -> str | None:
        """
        The next request that is due at this step, as JSON (docs/format.md, the control file), or None.
        """

    def capture_more(self, collections: Sequence[str], steps: int, raw: bool = False) -> int:
        """
        Records these collections' tensors in each of the next `steps` steps, whatever the schedules say.
        """

    def count_dropped(self, cause: str, tensors: int, detail: str = '') -> None: ...

    def dropped(self) -> list: ...

    def counters(self) -> dict: ...

    def abandon(self) -> None: ...

__version__: str
