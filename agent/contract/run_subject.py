"""The subject of a run: its case and machine, stored once for all runs that share them."""

from collections.abc import Mapping
from functools import cached_property
from typing import Any, NamedTuple

import msgspec

from edgemeter.agent.base.metrics import Better
from edgemeter.agent.base.types import Count
from edgemeter.agent.contract.case_identity import CaseKey, key_of
from edgemeter.agent.contract.energy_provenance import MEASURED, energy_provenance, not_measured
from edgemeter.agent.contract.figures import Group
from edgemeter.agent.contract.record import RunRecord
from edgemeter.agent.contract.record_conditions import DatasetInfo, Environment, Model
from edgemeter.agent.contract.record_figures import Scope
from edgemeter.agent.contract.series import UNKNOWN_BOARD, Fingerprint, SeriesKey, series_of_case

# The fields by which runs are filtered, each a column of the subject.
FACETS = (
    "fleet",
    "device",
    "role",
    "board",
    "model",
    "runtime",
    "precision",
    "task",
    "dataset_sha256",
    "scenario",
)
LOWER_IS_BETTER = " (lower is better)"  # Part of the kind of an accuracy.


class FigureKind(NamedTuple):
    """The kind that two values must share to be compared.

    It is the quantity (`text`), and the meter (`by`).
    """

    text: str
    by: str = ""

    def __str__(self) -> str:
        return f"{self.text} by {self.by}" if self.by else self.text


class EnergyMeasure(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The source of an energy."""

    sensor: str
    scope: Scope
    excludes: tuple[str, ...]


class AccuracyMeasure(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The metric of an accuracy, its data, and its rule of comparing texts."""

    metric: str
    better: Better
    images: Count
    dataset_sha256: str
    normalisation: str | None


class RunSubject(msgspec.Struct, frozen=True, dict=True, array_like=True):
    """The case of a run, its model, data and machine (at any boot).

    It also has the kinds of its energy and accuracy, None if it has none.

    `energy_provenance` is None for an energy that cannot be compared: not measured or replayed, or
    not positive.
    """

    key: CaseKey
    model: Model
    dataset: DatasetInfo
    environment: Environment
    mode: str
    provenance: Mapping[str, str]
    energy: EnergyMeasure | None
    energy_provenance: str | None
    accuracy: AccuracyMeasure | None
    is_accuracy_ranked: bool

    @property
    def board(self) -> str:
        """The type of the board."""
        return self.environment.board or UNKNOWN_BOARD

    @cached_property
    def series(self) -> SeriesKey:
        return series_of_case(self.key, self.board)

    @cached_property
    def fingerprint(self) -> Fingerprint:
        """The properties that may change within that series."""
        return Fingerprint(
            agent=self.environment.agent,
            runtime=f"{self.key.runtime_package} {self.key.runtime_version}",
            firmware=self.environment.firmware,
            kernel=self.environment.kernel,
            power_mode=self.environment.power_mode,
            governor=self.environment.governor,
            model=self.key.model_sha256[:12],
            meter=self.energy.sensor if self.energy else None,
        )

    @cached_property
    def energy_kind(self) -> FigureKind | None:
        """The kind of its energy, None if there is none to compare."""
        if self.energy is None or self.energy_provenance is None:
            return None
        excludes = f" without {', '.join(self.energy.excludes)}" if self.energy.excludes else ""
        provenance = "" if self.energy_provenance == MEASURED else f", {self.energy_provenance}"
        return FigureKind(f"{self.energy.scope}{excludes}", f"{self.energy.sensor}{provenance}")

    @cached_property
    def accuracy_kind(self) -> FigureKind | None:
        """The kind of its accuracy, None if there is none to compare."""
        measure = self.accuracy
        if measure is None or not self.is_accuracy_ranked:
            return None
        better = LOWER_IS_BETTER if measure.better == "lower" else ""
        rule = f" by {measure.normalisation}" if measure.normalisation else ""
        return FigureKind(
            f"{measure.metric}{better} over {measure.images} images "
            f"{measure.dataset_sha256[:12]}{rule}"
        )

    def kind(self, group: Group) -> FigureKind | None:
        """Return the kind of a group's figures.

        None if there are none to compare, or the group has no kinds.
        """
        return (
            self.energy_kind
            if group == "energy"
            else self.accuracy_kind
            if group == "accuracy"
            else None
        )

    @property
    def has_own_energy(self) -> bool | None:
        """Whether its energy was measured in the run itself, or replayed with it.

        None if there is none to compare.
        """
        return (
            None
            if self.energy_kind is None
            else self.energy_provenance == self.provenance.get("latency")
        )

    def facets(self) -> tuple[str, ...]:
        return tuple(self.board if name == "board" else getattr(self.key, name) for name in FACETS)


def subject_of(run: RunRecord) -> RunSubject:
    energy, accuracy = run.energy, run.accuracy
    return RunSubject(
        key=key_of(run),
        model=run.model,
        dataset=run.dataset,
        environment=msgspec.structs.replace(run.environment, boot_id=None),
        mode=run.mode,
        provenance=run.provenance,
        energy=EnergyMeasure(energy.sensor, energy.scope, energy.excludes) if energy else None,
        energy_provenance=energy_provenance(run)
        if energy and not not_measured(run, "energy")
        else None,
        accuracy=AccuracyMeasure(
            accuracy.metric,
            accuracy.better,
            accuracy.images,
            accuracy.dataset_sha256,
            accuracy.normalisation,
        )
        if accuracy
        else None,
        is_accuracy_ranked=not_measured(run, "accuracy") is None,
    )


def number_of(value: Any) -> int:
    """Return a hash of a value or its encoded bytes.

    It has 52 bits, which a float can hold, and is the same in every ledger.
    """
    import hashlib  # noqa: PLC0415 - it brings OpenSSL

    encoded = value if isinstance(value, bytes) else msgspec.msgpack.encode(value)
    return int.from_bytes(hashlib.sha256(encoded).digest()[:8], "big") >> 12
