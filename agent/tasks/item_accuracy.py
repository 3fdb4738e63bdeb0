"""The accuracy of a task that scores items one by one: a figure of any of them gives value, bounds, and what its groups reach."""

from collections.abc import Mapping, Sequence

from edgemeter.agent.base.metrics import Better
from edgemeter.agent.contract.record_accuracy import Accuracy
from edgemeter.agent.datasets.dataset import Dataset
from edgemeter.agent.tasks import Parts
from edgemeter.agent.tasks.groups import largest_gap, scored_groups
from edgemeter.agent.tasks.parts import NOT_ASKED, Bounded, ItemFigure


def item_accuracy(
    metric: str,
    figure: ItemFigure,
    members: Sequence[int],
    data: Dataset,
    *,
    parts: Parts = "all",
    better: Better = "higher",
    detail: Mapping[str, float | None] | None = None,
    warnings: Sequence[str] = (),
) -> Accuracy | None:
    """Return the accuracy of the items `members`, by their numbers; None where there is nothing to find in them."""
    value = figure.value(members) if members else None
    if value is None:
        return None
    bounds, groups = Bounded(reason=NOT_ASKED), []
    if parts == "all":
        bounds = figure.bounded(members)
        group_of = {index: (data.groups or {}).get(data.items[index].name) for index in members}
        groups = scored_groups({index: name for index, name in group_of.items() if name is not None}, figure)
    return Accuracy(
        metric=metric,
        value=value,
        images=len(members),
        dataset_sha256=data.sha256,
        detail=dict(detail or {}),
        low=bounds.low,
        high=bounds.high,
        interval=None if bounds.low is None else figure.interval,
        interval_reason=bounds.reason,
        without_parts=bounds.without_parts,
        group_metric=metric if groups else None,
        groups=tuple(group.part for group in groups),
        group_gap=largest_gap(groups, figure.freedom, better, figure.limits[1] - figure.limits[0]),
        warnings=(*data.warnings, *warnings),
        better=better,
    )
