"""How accurate a case is: the accuracy of its runs, of one metric on one set of data."""

from collections.abc import Sequence
from dataclasses import dataclass

from edgemeter.agent.records import Accuracy, RunRecord
from edgemeter.collector.compare.cases import distinct
from edgemeter.collector.compare.spread import Spread, of_one_kind, of_points, point_of
from edgemeter.collector.compare.store import LeftOut


@dataclass(frozen=True, slots=True)
class AccuracySummary:
    """Accuracy of the case's model; of several runs the median, which for a deterministic model is all of them.

    `low` and `high` (95 %) are of the newest run, over the images; None where it has none.
    """

    metric: str
    value: Spread
    images: int
    dataset_sha256: str
    detail: dict[str, float | None]
    low: float | None = None
    high: float | None = None


def accuracy_of(runs: Sequence[RunRecord]) -> tuple[AccuracySummary | None, str | None, list[LeftOut]]:
    """Return the accuracy of the runs of a case (oldest first), or why there is none, and what is left out of it."""
    kept, left_out = of_one_kind(runs, "accuracy", lambda run: run.accuracy, _kind)
    value = of_points([point_of(run, accuracy.value) for run, accuracy in kept])
    if value is None:
        reasons = distinct([*(run.accuracy_reason for run in runs), *(entry.reason for entry in left_out)])
        return None, "; ".join(reasons) or "not scored", left_out
    newest = kept[-1][1]
    found = AccuracySummary(newest.metric, value, newest.images, newest.dataset_sha256, newest.detail, newest.low, newest.high)
    return found, None, left_out


def _kind(accuracy: Accuracy) -> str:
    return f"{accuracy.metric} on {accuracy.images} images ({accuracy.dataset_sha256[:12]})"
