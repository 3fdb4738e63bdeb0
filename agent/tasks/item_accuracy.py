"""The accuracy of a task that scores items one by one: a figure of any of them gives value and bounds."""

from collections.abc import Mapping, Sequence

from edgemeter.agent.base.metrics import Better
from edgemeter.agent.contract.record_accuracy import Accuracy
from edgemeter.agent.datasets.dataset import Dataset
from edgemeter.agent.tasks import Parts
from edgemeter.agent.tasks.parts import Bounded, ItemFigure

# What the items of a kind are called.
_NOUNS = {"image": "images", "tensor": "items"}


def noun_of(data: Dataset) -> str:
    """Return what the items are called that bounds take as independent."""
    return _NOUNS[data.items[0].kind]


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
    bounds = figure.bounded(members, noun_of(data), data.copies) if parts == "all" else Bounded()
    return Accuracy(
        metric=metric,
        value=value,
        images=len(members),
        dataset_sha256=data.sha256,
        detail=dict(detail or {}),
        **bounds.in_record(),
        warnings=(*data.warnings, *warnings),
        better=better,
    )
