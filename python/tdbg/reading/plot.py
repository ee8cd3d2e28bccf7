"""Pictures of a run: `trial.plot.series(...)`, `.heatmap(...)`, `.histograms(...)`, `.images(...)`.

Each draws with matplotlib and returns the Figure; nothing is shown by itself outside a notebook, and in one it is
shown once, by the cell that draws it or where it is displayed. Colours are chosen
for people who do not see them all: viridis for sizes, and what is not finite is never left to look like a small number.
"""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import InvalidArgumentError, NotFoundError
from ..modes import ModeKeys
from ..words import counted
from .arrays import Array
from .frame import needed
from .steps import Mode

if TYPE_CHECKING:
    from .tensor import Tensor
    from .trial import Range, Trial

#: matplotlib's Figure and Axes; tdbg does not depend on it.
Figure = Any
Axes = Any

_NAN, _INF, _ABSENT, _ZERO = "#d62728", "#ff7f0e", "#f0f0f0", "#000000"
_NUMBER, _IS_NAN, _IS_INF, _IS_ABSENT, _IS_ZERO = range(5)  # what a cell of a heat map is
_DASHES = {ModeKeys.EVAL: "--", ModeKeys.PREDICT: ":"}  # of modes other than TRAIN
_MOST_LEGEND = 12
_MOST_ROWS = 60  # a label needs some height


def _pyplot() -> Any:
    return needed("matplotlib.pyplot", "trial.plot", "matplotlib")


def _shown_once(figure: Figure) -> Figure:
    """A notebook shows a cell's last expression, and all figures that are open when the cell ends: that is twice."""
    figure._ipython_display_ = functools.partial(_close_and_display, figure)
    return figure


def _close_and_display(figure: Figure) -> None:
    import matplotlib
    if "inline" in matplotlib.get_backend():
        _pyplot().close(figure)
    raise NotImplementedError  # IPython's word for: display it as you would have


def _short(names: Sequence[str]) -> list[str]:
    """What tells the names apart, without what all of them begin or end with."""
    if len(names) < 2:
        return list(names)
    begin = len(os.path.commonprefix(names))  # noqa: RUF071 - characters are meant, and no paths
    while begin and names[0][begin - 1] not in "/._":
        begin -= 1
    return [name[begin:] for name in names]


class Plots:
    """What `trial.plot` is. Every method returns matplotlib's Figure, drawn on `ax` where one is given.

    :raises ImportError: matplotlib is not there; says how to get it
    :raises NotFoundError: nothing of what was asked for is kept
    """

    def __init__(self, trial: Trial) -> None:
        self._trial = trial

    def series(self, tensors: str | Tensor | Iterable[str | Tensor], field: str = "mean_abs", *,
               mode: Mode = ModeKeys.GLOBAL, steps: Range | None = None, log: bool | None = None,
               worker: str | None = None, ax: Axes | None = None) -> Figure:
        """One line per tensor over the steps, and per mode where there are several: TRAIN solid, EVAL dashed.

        :param tensors: a collection, a tensor, or a list of tensors
        :param field: any of Trial.frame's; "value" for losses and other single numbers
        :param steps: (begin, end), global, end exclusive, either may be None
        :param log: logarithmic axis; default: where the values span more than a factor of 1000
        """
        plt = _pyplot()
        frame = self._trial.frame(tensors, [field], mode=mode, steps=steps, worker=worker)
        if not len(frame):
            raise NotFoundError(f"nothing of {tensors!r} is kept at any step of this mode")
        names, at, matrix = frame.pivot(field)
        figure = ax.figure if ax is not None else plt.figure(figsize=(8, 4), layout="constrained")
        ax = ax or figure.add_subplot()
        labels = _short(names)
        colours = plt.get_cmap("viridis")(np.linspace(0, 0.92, max(len(names), 2))) if len(names) > 10 else None
        several = len(np.unique(frame.mode_index)) > 1
        lines = 0
        for row, label in enumerate(labels):
            colour = None if colours is None else colours[row]
            finite = np.isfinite(matrix[row])
            mine = frame.tensor_index == row
            for number in np.unique(frame.mode_index[mine]):
                mode_of_line = ModeKeys(int(number))
                kept = np.isin(at, frame.step[mine & (frame.mode_index == number)])
                # A line runs through steps at which nothing was kept, and breaks where what was kept is no number.
                line, = ax.plot(at[kept], np.where(finite, matrix[row], np.nan)[kept], linewidth=1.4, color=colour,
                                label=f"{label} ({mode_of_line.name})" if several else label,
                                linestyle=_DASHES.get(mode_of_line, "-"),
                                marker="o" if (kept & finite).sum() < 2 else None)
                colour = line.get_color()
                lines += 1
                lost = at[kept & ~finite]  # crosses at the top
                if len(lost):
                    ax.plot(lost, np.full(len(lost), 0.985), "x", color=colour, markersize=6, clip_on=False,
                            transform=ax.get_xaxis_transform())
        finite = np.abs(matrix[np.isfinite(matrix) & (matrix != 0)])
        positive = not (matrix[np.isfinite(matrix)] < 0).any()
        if log is None:
            log = positive and finite.size > 0 and finite.max() > 1000 * finite.min()
        if log:
            ax.set_yscale("log" if positive else "symlog")
        ax.set_xlabel("step" if mode in (None, ModeKeys.GLOBAL) else f"step of the run ({getattr(mode, 'name', mode)})")
        ax.set_ylabel(field)
        ax.margins(x=0.01)
        ax.grid(True, color="#e6e6e6", linewidth=0.6)
        ax.spines[["top", "right"]].set_visible(False)
        if len(labels) == 1:
            ax.set_title(names[0], fontsize=10, loc="left")
        if 1 < lines <= _MOST_LEGEND:
            ax.legend(fontsize=8, frameon=False, loc="upper left", bbox_to_anchor=(1, 1))
        elif lines > 1:
            ax.set_title(f"{len(labels)} tensors: {labels[0]} (dark) to {labels[-1]} (light)", fontsize=9, loc="left")
        return _shown_once(figure)

    def heatmap(self, tensors: str | Tensor | Iterable[str | Tensor] = "gradients", field: str = "mean_abs", *,
                mode: Mode = ModeKeys.GLOBAL, steps: Range | None = None, worker: str | None = None,
                most_steps: int = 1000, ax: Axes | None = None) -> Figure:
        """Layers by steps: the first layer on top, brighter is larger; logarithmic where values span decades.

        A cell whose tensor holds a NaN is red, one with an infinity orange, an exact zero black, one where nothing is
        kept light grey. Counts (`nan_count`, `zero_count` ...) are drawn on a linear scale.

        :param steps: (begin, end), global, end exclusive, either may be None
        :param most_steps: more are thinned to about as many, a stretch showing the worst of its steps
        """
        plt = _pyplot()
        frame = self._trial.frame(tensors, [field, "nan_count", "nonfinite_count"], mode=mode, steps=steps,
                                  worker=worker)
        if not len(frame):
            raise NotFoundError(f"nothing of {tensors!r} is kept at any step of this mode")
        names, at, matrix = frame.pivot(field)
        nan, lost = frame.pivot("nan_count")[2], frame.pivot("nonfinite_count")[2]
        there = np.zeros(matrix.shape, bool)
        there[frame.tensor_index, np.searchsorted(at, frame.step)] = True
        order = self._trial._in_order(names)
        names = [names[i] for i in order]
        matrix, nan, lost, there = matrix[order], nan[order], lost[order], there[order]
        kind = np.where(there, _NUMBER, _IS_ABSENT)
        numbers = matrix[there & np.isfinite(matrix)]
        decades = not field.endswith("count") and not (numbers < 0).any() and (numbers > 0).any()
        if decades:  # a zero has no logarithm, and is no small number either
            kind[there & (matrix == 0)] = _IS_ZERO
        if not field.endswith("count"):
            kind[there & ((lost > 0) | np.isinf(matrix))] = _IS_INF
            kind[there & ((nan > 0) | (np.isnan(matrix) & ~(lost > 0)))] = _IS_NAN
        if len(at) > most_steps:
            at, matrix, kind = _thin(at, matrix, kind, most_steps)

        from matplotlib.colors import ListedColormap, LogNorm, Normalize
        from matplotlib.patches import Patch

        height = min(0.9 + 0.22 * min(len(names), _MOST_ROWS), 12)
        figure = ax.figure if ax is not None else plt.figure(figsize=(9, max(height, 1.8)), layout="constrained")
        ax = ax or figure.add_subplot()
        numbers = np.ma.masked_where((kind != _NUMBER) | ~np.isfinite(matrix), matrix)
        norm = Normalize()
        if decades and numbers.count():
            norm = LogNorm(numbers.min(), max(numbers.max(), numbers.min() * 1.0001))
        edges = _edges(at)
        rows = np.arange(len(names) + 1) - 0.5
        mesh = ax.pcolormesh(edges, rows, numbers, cmap="viridis", norm=norm, rasterized=True)
        rest = np.ma.masked_equal(kind, _NUMBER)
        if rest.count():
            ax.pcolormesh(edges, rows, rest, cmap=ListedColormap([_NAN, _INF, _ABSENT, _ZERO]), vmin=0.5, vmax=4.5,
                          rasterized=True)
        ax.set_ylim(len(names) - 0.5, -0.5)
        ticks = np.linspace(0, len(names) - 1, min(len(names), _MOST_ROWS)).astype(int)
        labels = _short(names)
        ax.set_yticks(ticks, [labels[i] for i in ticks], fontsize=8)
        ax.set_xlabel("step")
        ax.tick_params(length=2)
        ax.spines[:].set_visible(False)
        what = tensors if isinstance(tensors, str) else counted(len(names), "tensor")
        ax.set_title(f"{field} of {what}", fontsize=10, loc="left")
        if numbers.count():
            figure.colorbar(mesh, ax=ax, pad=0.01, aspect=30)
        keys = [Patch(color=colour, label=text)
                for number, colour, text in [(_IS_NAN, _NAN, "NaN"), (_IS_INF, _INF, "infinite"),
                                             (_IS_ZERO, _ZERO, "zero"), (_IS_ABSENT, _ABSENT, "not kept")]
                if (kind == number).any()]
        if keys:
            ax.legend(handles=keys, fontsize=8, frameon=False, ncols=len(keys), loc="lower right",
                      bbox_to_anchor=(1, 1), borderpad=0, handlelength=1)
        return _shown_once(figure)

    def histograms(self, tensor: str | Tensor, steps: Iterable[int] | None = None, *, mode: Mode = ModeKeys.GLOBAL,
                   worker: str | None = None, most: int = 40, bins: int = 80, ax: Axes | None = None) -> Figure:
        """How the elements of one tensor are distributed, over the steps: position is value, brightness is share.

        From the kept histograms (value within 1/9), and from raw values where there is no histogram.

        :param steps: default: all that have one (else all with a raw value), thinned to `most`
        """
        plt = _pyplot()
        tensor = self._trial.tensor(tensor) if isinstance(tensor, str) else tensor
        if steps is None:
            steps = tensor.steps(mode=mode, kind="histogram") or tensor.steps(mode=mode, kind="raw")
        steps = list(steps)
        if len(steps) > most:
            steps = [steps[i] for i in np.unique(np.linspace(0, len(steps) - 1, most).astype(int))]
        found = [(step, *self._distribution(tensor, step, mode, worker)) for step in steps]
        found = [(step, lower, upper, count) for step, lower, upper, count in found if len(count)]
        if not found:
            raise NotFoundError(f"neither histograms nor raw values of '{tensor.name}' are kept at these steps")
        # Between the outermost thousandths: one wild element must not squeeze the rest into a line.
        low = min(_quantile(lower, count, 0.001) for _, lower, _, count in found)
        high = max(_quantile(upper, count, 0.999) for _, _, upper, count in found)
        if not low < high:
            low, high = low - 0.5 - abs(low) * 0.1, high + 0.5 + abs(high) * 0.1
        # Where it leaves its range by decades, a linear axis would show the rest as one line.
        usual = min(np.median(np.abs(upper + lower) / 2) for _, lower, upper, _ in found)
        wide = usual > 0 and max(-low, high) > 200 * usual
        if wide:
            edges = usual * np.sinh(np.linspace(np.arcsinh(low / usual), np.arcsinh(high / usual), bins + 1))
        else:
            edges = np.linspace(low, high, bins + 1)
        image = np.stack([_rebin(lower, upper, count, edges) / count.sum() for _, lower, upper, count in found], axis=1)
        figure = ax.figure if ax is not None else plt.figure(figsize=(8, 4), layout="constrained")
        ax = ax or figure.add_subplot()
        from matplotlib.colors import PowerNorm

        at = np.array([step for step, *_ in found])
        mesh = ax.pcolormesh(_edges(at), edges, image, cmap="viridis", norm=PowerNorm(0.5), rasterized=True)
        if wide:
            ax.set_yscale("asinh", linear_width=usual)
            # The scale's own choice writes labels over one another around 0.
            from matplotlib.ticker import FixedLocator, FuncFormatter

            powers = 10.0 ** np.arange(math.ceil(math.log10(3 * usual)), math.ceil(math.log10(max(-low, high))) + 1)
            ax.yaxis.set_major_locator(FixedLocator([*-powers[::-1], 0, *powers]))
            ax.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:g}"))
            ax.yaxis.set_minor_locator(FixedLocator([]))
            ax.set_ylim(low, high)
        if low < 0 < high:
            ax.axhline(0, color="white", linewidth=0.5, alpha=0.5)
        ax.set_xlabel("step")
        ax.set_ylabel("value")
        ax.set_title(tensor.name, fontsize=10, loc="left")
        ax.tick_params(length=2)
        ax.spines[:].set_visible(False)
        figure.colorbar(mesh, ax=ax, pad=0.01, aspect=30, label="share of the elements")
        return _shown_once(figure)

    def _distribution(self, tensor: Tensor, step: int, mode: Mode, worker: str | None) -> tuple[Array, Array, Array]:
        try:
            histogram = tensor.histogram(step, mode, worker)
            zeros = tensor.summary(step, mode, worker).zero_count
            lower, upper, count = histogram.lower, histogram.upper, histogram.count.astype(float)
            if zeros:
                lower, upper, count = (np.append(a, b) for a, b in ((lower, 0.0), (upper, 0.0), (count, zeros)))
            return lower, upper, count
        except NotFoundError:
            pass
        try:
            values = np.asarray(tensor.value(step, mode, worker), dtype=np.float64).ravel()
        except (NotFoundError, ValueError, TypeError):
            return np.empty(0), np.empty(0), np.empty(0)
        values = values[np.isfinite(values)]
        return values, values, np.ones(len(values))

    def images(self, tensor: str | Tensor, steps: Iterable[int] | None = None, *, item: int = 0,
               channels: Sequence[int] | None = None, most: int = 8, most_rows: int = 8, mode: Mode = ModeKeys.GLOBAL,
               worker: str | None = None) -> Figure:
        """Maps of a convolution (its outputs, or its kernels) as grey pictures: a column per step, titled with it.

        A value of four axes is taken as (item, channel, height, width); of kernels (out, in, height, width), a row is
        one output channel's kernel for input `item`. Three axes are (channel, height, width), two one picture.

        :param steps: default: those with a raw value, thinned to `most`
        :param item: which of the batch (outputs), or which input channel (kernels)
        :param channels: a list of those to draw, a row each; default: all, up to `most_rows`
        """
        plt = _pyplot()
        tensor = self._trial.tensor(tensor) if isinstance(tensor, str) else tensor
        steps = list(tensor.steps(mode=mode, kind="raw") if steps is None else steps)
        if not steps:
            raise NotFoundError(f"no raw values of '{tensor.name}' are kept: keep them with --collect NAME:INTERVAL")
        if len(steps) > most:
            steps = [steps[i] for i in np.unique(np.linspace(0, len(steps) - 1, most).astype(int))]
        kernels = tensor.kind in ("weight", "gradient")
        columns: list[Any] = [_maps(tensor, tensor.value(step, mode, worker), item, kernels) for step in steps]
        if channels is not None:
            if bad := [c for c in channels if not 0 <= c < min(map(len, columns))]:
                raise InvalidArgumentError(f"channels: '{tensor.name}' has {len(columns[0])} of them, "
                                           f"there is no {bad[0]}")
            columns = [[column[c] for c in channels] for column in columns]
        columns = [column[:most_rows] for column in columns]
        rows = max(len(column) for column in columns)
        high, wide = columns[0][0].shape
        cell = 1.1
        size = (max(cell * len(steps), 2.2), max(cell * rows * min(high / wide, 2), 1) + 0.5)
        figure, axes = plt.subplots(rows, len(steps), figsize=size, squeeze=False,
                                    gridspec_kw={"wspace": 0.06, "hspace": 0.06})
        for column, (step, maps) in enumerate(zip(steps, columns, strict=True)):
            for row in range(rows):
                ax = axes[row][column]
                ax.set_xticks([])
                ax.set_yticks([])
                ax.spines[:].set_visible(False)
                if row >= len(maps):
                    continue
                _grey(ax, maps[row])
            axes[0][column].set_title(step, fontsize=9)
        figure.suptitle(tensor.name, fontsize=10, x=0.5, y=0.985, va="top")
        figure.subplots_adjust(left=0.02, right=0.98, bottom=0.02, top=1 - 0.55 / size[1])
        return _shown_once(figure)


def _grey(ax: Axes, picture: Array) -> None:
    finite = picture[np.isfinite(picture)]
    low, high = (finite.min(), finite.max()) if finite.size else (0, 1)
    ax.imshow(np.where(np.isfinite(picture), picture, np.nan), cmap="gray", vmin=low,
              vmax=high if high > low else low + 1, interpolation="nearest", aspect="equal")
    bad = ~np.isfinite(picture)
    if bad.any():
        marks = np.zeros((*picture.shape, 4))
        marks[bad] = (0.84, 0.15, 0.16, 1)
        ax.imshow(marks, interpolation="nearest", aspect="equal")


def _maps(tensor: Tensor, value: Array, item: int, kernels: bool) -> Array:
    value = np.asarray(value)
    if not np.issubdtype(value.dtype, np.number):
        value = value.astype(np.float32)
    if value.ndim == 4:
        axis = 1 if kernels else 0
        if not -value.shape[axis] <= item < value.shape[axis]:
            raise InvalidArgumentError(f"item {item}: '{tensor.name}' has {value.shape[axis]} "
                                       f"{'input channels' if kernels else 'items'}")
        return value[:, item] if kernels else value[item]
    if value.ndim == 3:
        return value
    if value.ndim == 2:
        return value[None]
    raise InvalidArgumentError(f"'{tensor.name}' has {value.ndim} axes: pictures need 2 to 4")


def _edges(steps: Array) -> Array:
    """Borders of cells around ascending steps, half way between neighbours."""
    steps = np.asarray(steps, dtype=float)
    if len(steps) == 1:
        return np.array([steps[0] - 0.5, steps[0] + 0.5])
    middle = (steps[1:] + steps[:-1]) / 2
    return np.concatenate([[steps[0] - (middle[0] - steps[0])], middle, [steps[-1] + (steps[-1] - middle[-1])]])


def _thin(steps: Array, matrix: Array, kind: Array, most: int) -> tuple[Array, Array, Array]:
    """Stretches of neighbouring steps become one: its largest number, and the worst of what is none."""
    starts = np.unique(np.linspace(0, len(steps), most + 1).astype(int)[:-1])
    numbers = np.where((kind == _NUMBER) & np.isfinite(matrix), matrix, -np.inf)
    numbers = np.maximum.reduceat(numbers, starts, axis=1)
    by_severity = np.array([_IS_ABSENT, _IS_ZERO, _NUMBER, _IS_INF, _IS_NAN])
    severity = np.argsort(by_severity)[kind]
    kind = by_severity[np.maximum.reduceat(severity, starts, axis=1)]
    return steps[starts], np.where(np.isinf(numbers), np.nan, numbers), kind


def _quantile(values: Array, count: Array, q: float) -> Any:
    order = np.argsort(values)
    below = np.cumsum(count[order])
    return values[order][min(np.searchsorted(below, q * below[-1]), len(values) - 1)]


def _rebin(lower: Array, upper: Array, count: Array, edges: Array) -> Array:
    """Counts of buckets spread evenly over bins; what lies outside goes to the outermost."""
    lower = np.clip(lower, edges[0], edges[-1])
    upper = np.clip(upper, edges[0], edges[-1])
    point = upper <= lower
    out = np.histogram(lower[point], edges, weights=count[point])[0].astype(float)
    if (~point).any():
        low, high, n = lower[~point], upper[~point], count[~point]
        # The cumulative count at an edge: each bucket rises linearly from its lower to its upper border.
        share = np.clip((edges[:, None] - low) / (high - low), 0, 1)
        out += np.diff(share @ n)
    return out
