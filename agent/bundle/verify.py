"""Verifies bundles: undamaged, signed by whom, and every figure recomputed from the raw samples; and what one holds, in words."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from edgemeter.agent.base.errors import ConfigError, UnavailableError
from edgemeter.agent.base.figures import accuracy, plain_digits
from edgemeter.agent.bundle import recompute, signature
from edgemeter.agent.bundle.archive import RunBundle, RunFile, SeriesFile, read_bundle
from edgemeter.agent.bundle.recompute import FigureDifference, NotRecomputed, SameFigure
from edgemeter.agent.contract.energy_provenance import energy_provenance
from edgemeter.agent.contract.record import RunRecord


class BundleSignature(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a bundle's signature: `unchecked` where the library is missing; `expected` is null where no key was given."""

    state: Literal["unsigned", "signed", "wrong", "unchecked"]
    fingerprint: str | None = None
    expected: bool | None = None
    detail: str | None = None


class Verification(msgspec.Struct, frozen=True, kw_only=True):
    """The result for one bundle; `checked` is the number of recomputed figures. A damaged one has an `error` and nothing else."""

    file: str
    state: Literal["same", "differs", "damaged"]
    error: str | None = None
    record: str | None = None
    device: str | None = None
    model: str | None = None
    written_by: str | None = None
    checked: int = 0
    differences: tuple[FigureDifference, ...] = ()
    left: tuple[NotRecomputed, ...] = ()
    signature: BundleSignature | None = None

    @property
    def holds(self) -> bool:
        """Return whether the bundle is undamaged, its figures are not shown to be others, and its signature is absent or right."""
        signed = self.signature
        return self.state == "same" and (signed is None or (signed.state != "wrong" and signed.expected is not False))


def verify(path: Path, expected: str | None = None) -> Verification:
    """Verify the bundle in a file; `expected` is the fingerprint of the key that must have signed it."""
    try:
        bundle = read_bundle(path)
        findings = list(recompute.recompute(bundle.record))
    except ConfigError as error:
        return Verification(file=str(path), state="damaged", error=" ".join(str(error).split()))
    differences = tuple(finding for finding in findings if isinstance(finding, FigureDifference))
    return Verification(
        file=str(path),
        state="differs" if differences else "same",
        record=bundle.record.id,
        device=bundle.record.device,
        model=bundle.record.model.name,
        written_by=bundle.manifest.written_by,
        checked=sum(isinstance(finding, SameFigure | FigureDifference) for finding in findings),
        differences=differences,
        left=tuple(finding for finding in findings if isinstance(finding, NotRecomputed)),
        signature=signature_of(bundle, expected),
    )


def signature_of(bundle: RunBundle, expected: str | None) -> BundleSignature:
    """Return the state of the bundle's signature; `expected` is the fingerprint of the key that must have signed it."""
    missing = None if expected is None else False
    if bundle.signature is None and bundle.signer_pem is None:
        return BundleSignature(state="unsigned", expected=missing)
    if bundle.signature is None or bundle.signer_pem is None:
        return BundleSignature(state="wrong", detail="the bundle holds a signature without a key, or a key without a signature")
    try:
        fingerprint = signature.check_signature(bundle.manifest_text, bundle.signature, bundle.signer_pem)
    except UnavailableError as error:
        return BundleSignature(state="unchecked", expected=missing, detail=str(error))
    except signature.WrongSignatureError as error:
        return BundleSignature(state="wrong", detail=str(error))
    return BundleSignature(state="signed", fingerprint=fingerprint, expected=None if expected is None else fingerprint == expected)


def show_verifications(verifications: Sequence[Verification], version: str, console: Console) -> None:
    """Print the result for each bundle; `version` is that of this edgemeter."""
    for verification in verifications:
        for line in _lines(verification, version):
            console.print(line, markup=False, highlight=False, soft_wrap=True)
        if verification.differences:
            console.print(_table(verification.differences))
    for line in _left_lines([verification for verification in verifications if verification.error is None]):
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def _lines(verification: Verification, version: str) -> list[str]:
    if verification.error is not None:
        return [f"{verification.file}: damaged: {verification.error}"]
    count = len(verification.differences)
    differ = f"{verification.checked} figures recomputed, {count or 'none'} differ{'s' * (count == 1)}"
    lines = [f"{verification.file}: {verification.model} on {verification.device}: {differ}", f"  {signature_text(verification.signature)}"]
    if verification.written_by != version:
        lines.append(f"  written by edgemeter {verification.written_by}, recomputed by {version}: definitions may have changed in between")
    return lines


def _left_lines(verifications: Sequence[Verification]) -> list[str]:
    """Return a line for each field of bundles that was not recomputed, with its reason; where it is not of all, with how many."""
    counts = Counter(f"{part.field}: {part.why}" for verification in verifications for part in verification.left)
    return [f"not recomputed: {text}{f' (in {of} of them)' if of < len(verifications) else ''}" for text, of in counts.items()]


def signature_text(signature: BundleSignature | None) -> str:
    """Return the state of a signature in words."""
    if signature is None or signature.state == "unsigned":
        return "not signed" + (", though a key was expected" if signature and signature.expected is False else "")
    if signature.state in ("wrong", "unchecked"):
        return f"{'WRONG SIGNATURE' if signature.state == 'wrong' else 'signature not checked'}: {signature.detail}"
    whose = {None: "; check the signer with --public-key", True: ", the expected key", False: ", NOT the expected key"}[signature.expected]
    return f"signed by {signature.fingerprint}{whose}"


def _table(findings: Sequence[FigureDifference]) -> Table:
    table = Table(box=SIMPLE_HEAD)
    table.add_column("field", overflow="fold")
    table.add_column("stated", justify="right", overflow="fold")
    table.add_column("recomputed", justify="right", overflow="fold")
    for difference in findings:
        table.add_row(difference.field, _text(difference.stated), _text(difference.recomputed))
    return table


def _text(value: Any) -> str:
    return "-" if value is None else f"{value:.10g}" if isinstance(value, float) else str(value)


class BundleContents(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of a bundle; the samples of the record are left out, `series` describes them."""

    file: str
    written_by: str
    record: RunRecord
    members: tuple[RunFile, ...]
    series: tuple[SeriesFile, ...]
    signature: BundleSignature


def contents_of(path: Path) -> BundleContents:
    """Return what the bundle in a file holds; raises ConfigError if it cannot be read, is damaged, or its parts do not fit together."""
    bundle = read_bundle(path)
    return BundleContents(
        file=str(path),
        written_by=bundle.manifest.written_by,
        record=msgspec.structs.replace(bundle.record, samples=()),
        members=bundle.manifest.members,
        series=bundle.manifest.series,
        signature=signature_of(bundle, None),
    )


def record_lines(contents: BundleContents) -> list[str]:
    """Return the record in a few lines: what was measured where, the figures, the verdict, the signature."""
    record = contents.record
    case = f"{record.model.name}, {record.precision}, {record.runtime.name} {record.runtime.version} ({record.runtime.backend})"
    lines = [f"{contents.file}: run {record.id} of {record.device}: {case}", f"written by edgemeter {contents.written_by}"]
    if record.latency.p50_ms is not None:
        lines.append(f"latency p50 {plain_digits(record.latency.p50_ms)} ms of {record.latency.count:,} queries")
    if record.energy is not None:
        provenance = energy_provenance(record)
        label = "" if provenance == "measured" else f", {provenance or 'of unknown origin'}"
        lines.append(f"energy {plain_digits(record.energy.gross_mj)} mJ gross ({record.energy.sensor}, {record.energy.scope}{label})")
    if record.accuracy is not None:
        lines.append(f"accuracy {record.accuracy.metric} {accuracy(record.accuracy.value)} on {record.accuracy.images:,} images")
    lines += [f"{record.verdict.state}: {reason}" for reason in record.verdict.reasons] or [record.verdict.state]
    return [*lines, signature_text(contents.signature)]
