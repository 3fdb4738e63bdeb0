"""The subject of a run: what it has in common with other runs, kept once for all of them, as its case and the machine."""

import hashlib
from collections.abc import Mapping
from typing import Any

import msgspec

from edgemeter.agent.contract.case_identity import CaseKey, key_of
from edgemeter.agent.contract.energy_provenance import energy_provenance, not_measured
from edgemeter.agent.contract.record import RunRecord
from edgemeter.agent.contract.record_conditions import Environment
from edgemeter.agent.contract.run_figures import kind_of
from edgemeter.agent.contract.series import UNKNOWN_BOARD, Fingerprint, SeriesKey, series_of_case

# What runs may be narrowed to, each a column of the subject.
FACETS = ("fleet", "device", "role", "board", "model", "runtime", "precision", "task", "dataset_sha256", "scenario")


class RunSubject(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The case of a run, the machine at any boot, and of what kind its figures are; `meter` is the sensor of its energy.

    `*_kind`, `energy_by` and `energy_provenance` are None where nothing of the kind was measured or replayed.
    """

    key: CaseKey
    environment: Environment
    mode: str
    provenance: Mapping[str, str]
    meter: str | None
    energy_kind: str | None
    energy_by: str | None
    energy_provenance: str | None
    accuracy_kind: str | None

    @property
    def board(self) -> str:
        """The type of the board."""
        return self.environment.board or UNKNOWN_BOARD

    @property
    def series(self) -> SeriesKey:
        """The series that its runs belong to."""
        return series_of_case(self.key, self.board)

    @property
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
            meter=self.meter,
        )

    def facets(self) -> tuple[str, ...]:
        """Return its values of `FACETS`."""
        return tuple(self.board if name == "board" else getattr(self.key, name) for name in FACETS)


def subject_of(run: RunRecord) -> RunSubject:
    """Return the subject of `run`."""
    energy = kind_of(run, "energy") if run.energy is not None and not not_measured(run, "energy") else None
    accuracy = kind_of(run, "accuracy") if run.accuracy is not None and not not_measured(run, "accuracy") else None
    return RunSubject(
        key=key_of(run),
        environment=msgspec.structs.replace(run.environment, boot_id=None),
        mode=run.mode,
        provenance=run.provenance,
        meter=run.energy.sensor if run.energy else None,
        energy_kind=energy.text if energy else None,
        energy_by=energy.by if energy else None,
        energy_provenance=energy_provenance(run) if energy else None,
        accuracy_kind=accuracy.text if accuracy else None,
    )


def number_of(value: Any) -> int:
    """Return a number of 52 bits, which a float holds, that belongs to a value or its encoded bytes: every ledger gives it the same."""
    encoded = value if isinstance(value, bytes) else msgspec.msgpack.encode(value)
    return int.from_bytes(hashlib.sha256(encoded).digest()[:8], "big") >> 12
