"""What `edgemeter reference list` and `show` gather: three blocks that never mix, each saying whether it ranks beside devices."""

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from edgemeter.collector.compare.summary import Summary
from edgemeter.collector.reference.footnote import APART
from edgemeter.collector.reference.mlperf import MlperfRow
from edgemeter.collector.reference.published import PublishedRow
from edgemeter.collector.reference.shelf import Import

Flat = dict[str, object]


@dataclass(frozen=True, slots=True)
class Asked:
    """What is asked for: parts of names, whatever the case; None asks for everything."""

    model: str | None = None
    device: str | None = None
    scenario: str | None = None
    suite: str | None = None
    key: str | None = None

    def holds(self, names: dict[str, str | None], keys: Sequence[str]) -> bool:
        """Return whether all that is asked for is part of `names`, and `key` begins one of `keys`."""
        wanted = {"model": self.model, "device": self.device, "scenario": self.scenario, "suite": self.suite}
        parts = all(text.casefold() in (names.get(name) or "").casefold() for name, text in wanted.items() if text is not None)
        return parts and (self.key is None or any(name.casefold().startswith(self.key.casefold()) for name in keys))


@dataclass(frozen=True, slots=True)
class Listing:
    """The three blocks."""

    measured: list[Flat]
    imported: list[Flat]
    published: list[Flat]

    @property
    def document(self) -> Flat:
        """The listing as JSON has it: only what was measured ranks."""
        return {
            "measured": {"ranks": True, "rows": self.measured},
            "imported": {"ranks": False, "why": APART, "rows": self.imported},
            "published": {"ranks": False, "why": "published elsewhere: never in a statistic", "rows": self.published},
        }


def listing(measured: Sequence[Summary], imports: Sequence[Import], published: Sequence[PublishedRow], asked: Asked) -> Listing:
    """Return what was asked for of the three kinds."""
    return Listing(
        [row for case in measured if (row := _measured(case, asked))],
        [row for found in imports for one in found.rows if (row := _imported(found, one, asked))],
        [row for one in published if (row := _published(one, asked))],
    )


def _measured(case: Summary, asked: Asked) -> Flat | None:
    key = case.key
    if not asked.holds({"model": key.model, "device": key.device, "scenario": key.scenario}, [f"{key.device}/{key.model}"]):
        return None
    names = ("device", "model", "precision", "runtime", "backend", "scenario", "dataset_sha256")
    return {
        **{name: getattr(key, name) for name in names},
        "runs": len(case.runs),
        "latency_p50_ms": case.p50_ms.median if case.p50_ms else None,
        "throughput_per_s": case.throughput_per_s.median,
        "energy_gross_mj": case.gross_mj.median if case.gross_mj else None,
        "energy_scope": case.energy.scope if case.energy else None,
        "verdict": case.verdict,
        "provenance": key.provenance,
    }


def _imported(found: Import, row: MlperfRow, asked: Asked) -> Flat | None:
    names: dict[str, str | None] = {
        "model": row.model,
        "device": f"{row.system} {row.accelerator}",
        "scenario": row.scenario,
        "suite": row.suite,
    }
    if not asked.holds(names, [row.key, row.id]):
        return None
    fields: Flat = {"key": row.key, **msgspec.to_builtins(row)}
    return {**fields, "provenance": "imported", "retrieved": found.retrieved, "source": found.source, "footnote": found.footnote(row)}


def _published(row: PublishedRow, asked: Asked) -> Flat | None:
    if not asked.holds({"model": row.model, "device": row.device}, [row.id, row.key]) or asked.suite or asked.scenario:
        return None
    value, unit = row.canonical
    fields: Flat = {"id": row.id, "key": row.key, **msgspec.to_builtins(row)}
    return {**fields, "canonical_value": value, "canonical_unit": unit, "provenance": "published"}
