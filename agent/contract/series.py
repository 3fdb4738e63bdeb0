"""A series is the runs of a case on its device over time, across updates.

Its fingerprint is that of the properties that may change.
"""

from collections.abc import Callable
from operator import attrgetter
from typing import Any

import msgspec

from edgemeter.agent.contract.case_identity import FIELD, CaseKey, key_of
from edgemeter.agent.contract.record import RunRecord

# Boards of unknown type count as different.
UNKNOWN_BOARD = "unknown board"
# Fields of the case that may change within a series.
_CHANGES_IN_SERIES = ("power_mode", "runtime_package", "runtime_version", "model_sha256")
SERIES_FIELDS = tuple(name for name in FIELD if name not in _CHANGES_IN_SERIES)
# Fields of the case that are the same in a series.
in_series: Callable[[CaseKey], tuple[Any, ...]] = attrgetter(*SERIES_FIELDS)


class SeriesKey(msgspec.Struct, frozen=True, order=True):
    """The identity of a series: the case on its device and board.

    The properties that may change (`Fingerprint`) are not in it.
    """

    fleet: str
    device: str
    role: str
    board: str
    model: str
    precision: str
    runtime: str
    backend: str
    threads: int
    batch: int
    scenario: str
    task: str
    dataset_sha256: str
    provenance: str
    settings: str
    operating_point: str
    together: str
    deadline: str | None
    target_per_s: float | None
    concurrency: int | None
    input_values: int | None
    served_model: str | None
    prompt_tokens: int | None
    output_tokens: int | None

    def case(self) -> str:
        threads = f"{self.threads} thread" + ("" if self.threads == 1 else "s")
        batch = "" if self.batch == 1 else f", batch {self.batch}"
        users = "" if self.concurrency is None else f" of {self.concurrency}"
        tokens = (
            ""
            if self.output_tokens is None
            else f", {self.prompt_tokens or 'some'}+{self.output_tokens} tokens"
        )
        together = f"together with {self.together}" if self.together else ""
        details = "".join(
            f", {text}"
            for text in (self.settings, self.operating_point, together, self.served_model)
            if text
        )
        return (
            f"{self.model} {self.precision} on {self.runtime} {self.backend}, {threads}{batch}, "
            f"{self.scenario}{users}{tokens}{details}"
        )

    def of_type(self) -> "SeriesKey":
        """Return the series of the same case on all devices of the board type."""
        return msgspec.structs.replace(self, device="")


def series_of(run: RunRecord) -> SeriesKey:
    return series_of_case(key_of(run), run.environment.board or UNKNOWN_BOARD)


def series_of_case(key: CaseKey, board: str) -> SeriesKey:
    shared: dict[str, Any] = dict(zip(SERIES_FIELDS, in_series(key), strict=True))
    return SeriesKey(board=board, **shared)


class Fingerprint(msgspec.Struct, frozen=True):
    """The properties that may change within a series.

    A change on the day of a step may be its cause.
    """

    agent: str
    runtime: str
    firmware: str | None
    kernel: str
    power_mode: str | None
    governor: str | None
    model: str
    meter: str | None

    def changes_to(self, later: "Fingerprint") -> list[str]:
        """Return the differences to `later`, in words."""
        pairs = (
            (name, getattr(self, name), getattr(later, name)) for name in self.__struct_fields__
        )
        return [
            f"{name.replace('_', ' ')} {before or 'none'} to {after or 'none'}"
            for name, before, after in pairs
            # A run without energy has no meter.
            if before != after and not (name == "meter" and None in (before, after))
        ]
