"""Cases decide which runs belong together and which cannot be compared.

They are named here, and energies get their classes. Runs belong to one case or series.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from edgemeter.agent.base.number_text import stamp
from edgemeter.agent.contract.case_identity import FIELD, CaseKey
from edgemeter.agent.contract.energy_provenance import MEASURED, why_unranked
from edgemeter.agent.contract.record_conditions import Verdict
from edgemeter.agent.contract.record_figures import WIDEST_FIRST, Scope
from edgemeter.agent.contract.run_subject import RunSubject
from edgemeter.agent.verdict.words import sentence_of

Key = TypeVar("Key")
Value = TypeVar("Value")


@dataclass(frozen=True, slots=True, order=True)
class EnergyClass:
    """The class in which energies are ranked.

    As text it is its scope, and its provenance if not measured: `board-input, replayed`.
    """

    scope: Scope
    provenance: str

    def __str__(self) -> str:
        return self.scope if self.is_measured else f"{self.scope}, {self.provenance}"

    @property
    def is_measured(self) -> bool:
        """Whether a sensor measured it in the run itself."""
        return self.provenance == MEASURED

    @property
    def preference(self) -> tuple[bool, int]:
        """The sort key of classes, which do not rank with each other.

        Measured ones come first, then the widest scope.
        """
        return not self.is_measured, WIDEST_FIRST.index(self.scope)


@dataclass(frozen=True, slots=True)
class CurrentSegment:
    """Since when the runs of a case show the present level of the board, and why.

    `earlier` runs came before and do not count.
    """

    since_ns: int
    reason: str
    earlier: int

    @property
    def words(self) -> str:
        """The same in words: `since 2026-10-22, firmware 1.2 to 1.3 (latency +8.1%)`."""
        return f"since {stamp(self.since_ns)[:10]}, {self.reason}"


def unusable(subject: RunSubject, verdict: Verdict) -> str | None:
    """Return why a run of this subject cannot be compared; None if it can."""
    if verdict.state == "invalid":
        return "invalid: " + (
            "; ".join(map(sentence_of, verdict.violations)) or "no reason was given"
        )
    provenance = subject.provenance
    return why_unranked(provenance.get("latency"), "latency") or why_unranked(
        provenance.get("throughput", provenance.get("latency")), "throughput"
    )


def grouped(pairs: Iterable[tuple[Key, Value]]) -> dict[Key, list[Value]]:
    """Return the values of each key, both in the given order."""
    groups: dict[Key, list[Value]] = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    return groups


def distinct(values: Iterable[str | None]) -> Sequence[str]:
    """Return the different values in the order of their first appearance, without None."""
    return list(dict.fromkeys(value for value in values if value is not None))


def named(key: CaseKey) -> str:
    """Return the name of a case: model, precision, runtime and device."""
    return f"{key.model} {key.precision} on {key.runtime}, {key.device}"


def names_of(
    keys: Iterable[CaseKey],
    called: Callable[[CaseKey], str] = named,
    fields: Iterable[str] = tuple(FIELD),
) -> dict[CaseKey, str]:
    by_name = grouped((called(key), key) for key in dict.fromkeys(keys))
    parts = [FIELD[name].text for name in fields]
    return {
        key: ", ".join([name, *apart(key, alike, parts)])
        for name, alike in by_name.items()
        for key in alike
    }


def apart(
    key: CaseKey, alike: Sequence[CaseKey], parts: Sequence[Callable[[CaseKey], str]]
) -> list[str]:
    """Return the `parts` that distinguish a case from others of the same name."""
    distinguishing: list[str] = []
    remaining = [other for other in alike if other != key]
    for part in parts:
        same = [other for other in remaining if part(other) == part(key)]
        if len(same) < len(remaining):
            distinguishing.append(part(key))
            remaining = same
    return distinguishing
