"""The contents of a bundle: its record, its files, and the state of its signature; nothing is recomputed."""

from pathlib import Path

import msgspec

from edgemeter.agent.base.figures import accuracy, plain_digits
from edgemeter.agent.bundle.archive import RunFile, SeriesFile, read_bundle
from edgemeter.agent.bundle.verify import BundleSignature, signature_of, signature_text
from edgemeter.agent.contract.record import RunRecord


class BundleContents(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of a bundle; the samples of the record are left out, `series` describes them."""

    file: str
    written_by: str
    record: RunRecord
    members: tuple[RunFile, ...]
    series: tuple[SeriesFile, ...]
    signature: BundleSignature


def contents_of(path: Path) -> BundleContents:
    """Return what the bundle in a file holds.

    Raises:
        ConfigError: it cannot be read, is damaged, or its parts do not fit together.
    """
    found = read_bundle(path)
    return BundleContents(
        file=str(path),
        written_by=found.manifest.written_by,
        record=msgspec.structs.replace(found.record, samples=()),
        members=found.manifest.members,
        series=found.manifest.series,
        signature=signature_of(found, None),
    )


def record_lines(found: BundleContents) -> list[str]:
    """Return the record in a few lines: what was measured where, the figures, the verdict, the signature."""
    record = found.record
    case = f"{record.model.name}, {record.precision}, {record.runtime.name} {record.runtime.version} ({record.runtime.backend})"
    lines = [f"{found.file}: run {record.id} of {record.device}: {case}", f"written by edgemeter {found.written_by}"]
    if record.latency.p50_ms is not None:
        lines.append(f"latency p50 {plain_digits(record.latency.p50_ms)} ms of {record.latency.count:,} queries")
    if record.energy is not None:
        lines.append(f"energy {plain_digits(record.energy.gross_mj)} mJ gross ({record.energy.sensor}, {record.energy.scope})")
    if record.accuracy is not None:
        lines.append(f"accuracy {record.accuracy.metric} {accuracy(record.accuracy.value)} on {record.accuracy.images:,} images")
    lines += [f"{record.verdict.state}: {reason}" for reason in record.verdict.reasons] or [record.verdict.state]
    return [*lines, signature_text(found.signature)]
