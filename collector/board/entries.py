"""The entries of a site of results: bundles, each verified, and whether its result may be listed among the verified ones.

A verified run has only what was recomputed: what a lab states besides stands apart. Samples that come again count once.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import msgspec

from edgemeter.agent.bundle.archive import read_bundle
from edgemeter.agent.bundle.signature import fingerprint_of_file
from edgemeter.agent.bundle.verify import Verification, signature_text, verify
from edgemeter.agent.contract.record import RunRecord
from edgemeter.collector.board.copies import originals
from edgemeter.collector.runs.cases import grouped, not_measured

# So much of a fingerprint tells keys apart for the eye; the page of a result has all of it.
SHORT = 12
FIGURES_NAMED = 4
_ACCURACY = "the predictions are not in the bundle"
# `verified`: signed by a known key and recomputed. `unproven`: recomputed, but nobody known vouches, or by another method.
# `copied`: its samples are those of another bundle. `refused`: the figures are others, the file is damaged, or the signature is wrong.
EntryState = Literal["verified", "unproven", "copied", "refused"]


@dataclass(frozen=True, slots=True)
class SiteEntry:
    """One bundle: where it is, what verification found, its run (the lab in the place of the fleet), and why it is not verified.

    `run` has what was recomputed, `stated` all that the lab stated. `copies` are the bundles that have the same samples.
    """

    path: Path
    state: EntryState
    found: Verification
    lab: str
    reason: str = ""
    run: RunRecord | None = None
    stated: RunRecord | None = None
    stated_fleet: str = ""
    copies: tuple[str, ...] = ()


def lab_keys(files: Sequence[Path]) -> dict[str, str]:
    """Return the names of labs by the fingerprints of their public keys; a lab is called as its key's file, without suffixes.

    Raises:
        ConfigError: a file holds no such key.
    """
    return {fingerprint_of_file(file): file.name.removesuffix(".pub").removesuffix(".key") for file in files}


def read_entries(
    files: Sequence[Path], labs: Mapping[str, str], progress: Callable[[str, int, int], None] = lambda *_: None
) -> list[SiteEntry]:
    """Return an entry for each bundle; where `labs` is empty, any right signature counts.

    Of several bundles with the same samples the first stays, one that is verified before others.
    """
    entries: list[SiteEntry] = []
    first_files: dict[str, str] = {}
    for count, file in enumerate(files, start=1):
        entry = _entry(file, labs)
        if entry.run and (first := first_files.setdefault(entry.run.id, file.name)) != file.name:
            entry = replace(entry, state="refused", run=None, stated=None, reason=f"the same run as {first}")
        entries.append(entry)
        progress("verifying bundles", count, len(files))
    return _without_copies(entries)


def _without_copies(entries: Sequence[SiteEntry]) -> list[SiteEntry]:
    by_trust = sorted((entry for entry in entries if entry.stated), key=lambda entry: entry.state != "verified")
    copied = originals([(str(entry.path), entry.stated) for entry in by_trust if entry.stated])
    files = {str(entry.path): entry.path.name for entry in entries}
    copies = grouped((original, files[copy]) for copy, (original, _) in copied.items())
    checked = []
    for entry in entries:
        if (path := str(entry.path)) in copied:
            original, how = copied[path]
            reasons = [f"{how} as {files[original]}: one measurement counts once", *([entry.reason] if entry.reason else [])]
            checked.append(replace(entry, state="copied", run=None, reason="; ".join(reasons)))
        else:
            checked.append(replace(entry, copies=tuple(copies.get(path, ()))))
    return checked


def _entry(file: Path, labs: Mapping[str, str]) -> SiteEntry:
    verification = verify(file)
    signature = verification.signature
    lab = "unsigned"
    if signature is not None and signature.fingerprint is not None:
        lab = labs.get(signature.fingerprint, f"key {signature.fingerprint[:SHORT]}")
    if reason := _refusal(verification):
        return SiteEntry(file, "refused", verification, lab, reason)
    record = read_bundle(file).record
    # Devices of two labs may have one name: the lab stands in the place of the fleet.
    stated_run = msgspec.structs.replace(record, fleet=lab)
    doubt = _doubt(verification, labs) or not_measured(record, "latency") or ""
    return SiteEntry(file, "unproven" if doubt else "verified", verification, lab, doubt, _recomputed(stated_run), stated_run, record.fleet)


def _recomputed(run: RunRecord) -> RunRecord:
    """Return a run without the accuracy that its lab states: the predictions are not in the bundle."""
    if run.accuracy is None:
        return run
    return msgspec.structs.replace(run, accuracy=None, accuracy_gate=None, accuracy_reason=f"stated, not recomputed: {_ACCURACY}")


def _refusal(verification: Verification) -> str:
    if verification.error is not None:
        return f"damaged: {verification.error}"
    if verification.signature is not None and verification.signature.state in ("wrong", "unchecked"):
        return signature_text(verification.signature)
    if verification.differences:
        named = ", ".join(difference.field for difference in verification.differences[:FIGURES_NAMED])
        remainder = f" and {len(verification.differences) - FIGURES_NAMED} more" if len(verification.differences) > FIGURES_NAMED else ""
        return f"does not recompute from its raw samples: {named}{remainder}"
    return ""


def _doubt(verification: Verification, labs: Mapping[str, str]) -> str:
    signed = verification.signature
    if signed is None or signed.state != "signed":
        return "not signed"
    if labs and signed.fingerprint not in labs:
        return "signed by a key that is not among those of this board"
    if verification.other_method:
        return "its energies were computed by another version of the method: neither shown to be right nor wrong"
    return ""
