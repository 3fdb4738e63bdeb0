"""The accuracy and the energy of a case: value, source, and what it may be compared with."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import islice

from edgemeter.agent.base.evidence import CONFIDENCE, EXACT, REACH, Evidence
from edgemeter.agent.base.metrics import Better, gain
from edgemeter.agent.base.statistics import jackknife_error, jackknife_freedom, student_quantile
from edgemeter.agent.contract.record import RunRecord
from edgemeter.agent.contract.record_figures import Scope
from edgemeter.collector.runs.cases import EnergyClass
from edgemeter.collector.runs.store import RunStore

# Records in memory at a time.
_AT_ONCE = 500


@dataclass(frozen=True)
class AccuracySummary:
    """Accuracy of the case's model, from the newest scored run.

    A deterministic model has the same in every run. `low` and `high` (95%) are over the images;
    None without an interval. `run` and `row` are the id and the row of that run in the `store`;
    `read` returns its record.
    """

    metric: str
    value: float
    images: int
    dataset_sha256: str
    low: float | None
    high: float | None
    better: Better
    normalisation: str | None
    store: RunStore
    run: str
    row: int
    read: Callable[[], RunRecord]

    @cached_property
    def without_parts(self) -> tuple[float, ...]:
        """Its values without one part of the images each."""
        accuracy = self.read().accuracy
        if accuracy is None:
            raise LookupError(f"the record of {self.run} has no accuracy")
        return accuracy.without_parts

    @property
    def measure(self) -> tuple[str, int, str, str | None]:
        """Return what two accuracies must share to be compared.

        That is metric, number of images, data, and the rule or protocol of comparing.
        """
        return self.metric, self.images, self.dataset_sha256, self.normalisation

    @property
    def evidence(self) -> Evidence:
        return Evidence(
            self.value,
            None if self.low is None or self.high is None else (self.high - self.low) / 2 / REACH,
            EXACT,
            self.images,
            "image",
        )

    def half(self, end: float | None) -> Evidence:
        """The value with its standard error towards an end of its interval.

        Near 0 and 1 the two halves differ.
        """
        if end is None:
            return Evidence(self.value, None, 0, self.images, "image")
        is_spread = self.without_parts and jackknife_error(self.without_parts) is not None
        freedom = jackknife_freedom(self.without_parts) if is_spread else EXACT
        return Evidence(
            self.value,
            abs(end - self.value) / student_quantile(CONFIDENCE, min(freedom, 1000.0)),
            freedom,
            self.images,
            "image",
        )

    def bounds(self, confidence: float) -> tuple[float, float] | None:
        """Return the interval at another confidence than 95%.

        Each half is longer by the same factor.
        """
        low, high = (self.half(end).bounds(confidence) for end in (self.low, self.high))
        return (low[0], high[1]) if low and high else None

    @property
    def gain(self) -> float:
        """Return the value, negated if lower is better, so that the larger is the better one."""
        return gain(self.value, self.better)


@dataclass(frozen=True, slots=True)
class EnergySummary:
    """The energies of a case, per inference or request."""

    provenance: str
    sensor: str
    scope: Scope
    excludes: tuple[str, ...]

    @property
    def ranks_as(self) -> EnergyClass:
        """The class of energies that it may be ranked with."""
        return EnergyClass(self.scope, self.provenance)


def read_parts(accuracies: Iterable[AccuracySummary]) -> None:
    """Read `without_parts` of many accuracies at once.

    The records of a fleet's newest runs are stored together.
    """
    waiting = iter(
        {
            id(accuracy): accuracy
            for accuracy in accuracies
            if "without_parts" not in vars(accuracy)
        }.values()
    )
    while batch := list(islice(waiting, _AT_ONCE)):
        by_id = {
            record.id: record.accuracy
            for record in batch[0].store.records([accuracy.row for accuracy in batch])
        }
        for accuracy in batch:
            # If one cannot be read, another run is tried, by itself.
            if (of_record := by_id.get(accuracy.run)) is not None:
                vars(accuracy)["without_parts"] = of_record.without_parts
