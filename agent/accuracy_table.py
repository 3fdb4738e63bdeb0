"""An accuracy as text: the figures, then by class, by number of objects, by group and under corruption, as far as there are any."""

from collections.abc import Iterable, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from edgemeter.agent import records
from edgemeter.agent.accuracy_command import NAMES, Scored
from edgemeter.agent.vision.coco_report import RECALL
from edgemeter.agent.vision.groups import SMALLEST_GROUP

ABSENT = "-"
SEVERITIES = 5
# How figures are called where people read them.
HEADINGS = {
    "ap": "AP",
    "ap50": "AP50",
    "ap75": "AP75",
    "ap_small": "AP small",
    "ap_medium": "AP medium",
    "ap_large": "AP large",
    "ar_1": "AR, 1 detection",
    "ar_10": "AR, 10 detections",
    "ar_100": "AR, 100 detections",
    "ar_small": "AR small",
    "ar_medium": "AR medium",
    "ar_large": "AR large",
    "top1": "top-1",
    "top5": "top-5",
    "coco_ap": "AP",
    "coco_ar_100": "AR",
}


def show(scored: Scored, console: Console | None = None, *, with_classes: bool) -> None:
    """Print all of it, the classes only where they are asked for: there may be a thousand."""
    console = console or Console()
    counted = f"{scored.images:,} images" + ("" if scored.detections is None else f", {scored.detections:,} detections")
    one = scored.accuracy
    if one is None:
        console.print(f"{counted}: no accuracy", highlight=False)
        return
    name = NAMES.get(one.metric, one.metric)
    # A figure's bounds stand beside it, not below it.
    named = [key for key in one.detail if not key.endswith(("_low", "_high"))]
    bounds = {key: _bounds(one.detail.get(f"{key}_low"), one.detail.get(f"{key}_high")) for key in named}
    figures = [(name, one.value, _bounds(one.low, one.high)), *((key, one.detail[key], bounds[key]) for key in named)]
    console.print(_table(counted, ("", "", "95 %"), [(HEADINGS.get(key, key), _figure(value), said) for key, value, said in figures]))
    metric = HEADINGS.get(one.metric, one.metric)
    if one.by_objects:
        console.print(_parts("objects in the image", metric, one.by_objects))
    if one.groups:
        console.print(_parts("group", HEADINGS.get(one.group_metric or "", one.group_metric or ""), one.groups))
        if any(group.value is None for group in one.groups):
            what = "objects" if one.group_metric == RECALL else "images"
            console.print(f"a group of fewer than {SMALLEST_GROUP} {what} gets no figure", markup=False, highlight=False)
    if gap := one.group_gap:
        said = f"largest gap: {gap.best} {_figure(gap.value)} above {gap.worst} {_bounds(gap.low, gap.high)}"
        console.print(said, markup=False, highlight=False, soft_wrap=True)
    if one.per_class and with_classes:
        console.print(_parts("class", metric, one.per_class))
    if one.robustness:
        console.print(_corruptions(metric, one.value, one.robustness))


def _parts(heading: str, metric: str, parts: Sequence[records.PartAccuracy]) -> Table:
    is_bounded = any(part.low is not None for part in parts)
    is_of_objects = any(part.objects is not None for part in parts)
    headings = (heading, metric, *(["95 %"] if is_bounded else []), "images", *(["objects"] if is_of_objects else []))
    rows = [
        (
            part.name,
            _figure(part.value),
            *([_bounds(part.low, part.high)] if is_bounded else []),
            f"{part.images:,}",
            *([f"{part.objects:,}" if part.objects is not None else ABSENT] if is_of_objects else []),
        )
        for part in parts
    ]
    return _table(None, headings, rows)


def _corruptions(metric: str, clean: float, robustness: records.Robustness) -> Table:
    headings = (f"{metric} at severity", "0", *(str(level + 1) for level in range(SEVERITIES)), "mean")
    rows = [(one.name, _figure(clean), *map(_figure, one.values), _figure(mean(one.values))) for one in robustness.corruptions]
    drop = f"mean {_figure(robustness.mean_value)}, {_figure(robustness.drop_value)} below the clean {metric} (seed {robustness.seed})"
    return _table(drop, headings, rows)


def mean(values: Iterable[float | None]) -> float | None:
    """Return the mean of the figures; None unless all are there."""
    known = list(values)
    return None if not known or None in known else sum(value for value in known if value is not None) / len(known)


def _table(title: str | None, headings: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for place, heading in enumerate(headings):
        table.add_column(heading, justify="right" if place else "left", overflow="fold", no_wrap=place > 0)
    for row in rows:
        table.add_row(*row)
    return table


def _figure(value: float | None) -> str:
    return ABSENT if value is None else f"{value:.4f}"


def _bounds(low: float | None, high: float | None) -> str:
    return "" if low is None or high is None else f"{low:.4f} .. {high:.4f}"
