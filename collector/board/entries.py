"""The entries of a site of results: bundles, each verified, and whether its result may be listed among the verified ones."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import msgspec

from edgemeter.agent.bundle.archive import read_bundle
from edgemeter.agent.bundle.signature import fingerprint_of_file
from edgemeter.agent.bundle.verify import Verification, signature_text, verify
from edgemeter.agent.contract.record import RunRecord

# So much of a fingerprint tells keys apart for the eye; the page of a result has all of it.
SHORT = 12
FIGURES_NAMED = 4
# `verified`: signed by a known key and recomputed. `unproven`: recomputed, but nobody known vouches, or by another method.
# `refused`: the figures are others, the file is damaged, or the signature is wrong.
EntryState = Literal["verified", "unproven", "refused"]


@dataclass(frozen=True, slots=True)
class SiteEntry:
    """One bundle: where it is, what verification found, its run (the lab in the place of the fleet), and why it is not verified."""

    path: Path
    state: EntryState
    found: Verification
    lab: str
    reason: str = ""
    run: RunRecord | None = None
    stated_fleet: str = ""


def lab_keys(files: Sequence[Path]) -> dict[str, str]:
    """Return the names of labs by the fingerprints of their public keys; a lab is called as its key's file, without suffixes.

    Raises:
        ConfigError: a file holds no such key.
    """
    return {fingerprint_of_file(file): file.name.removesuffix(".pub").removesuffix(".key") for file in files}


def read_entries(
    files: Sequence[Path], labs: Mapping[str, str], progress: Callable[[str, int, int], None] = lambda *_: None
) -> list[SiteEntry]:
    """Return an entry for each bundle; where `labs` is empty, any right signature counts."""
    found: list[SiteEntry] = []
    taken: dict[str, str] = {}
    for count, file in enumerate(files, start=1):
        entry = _entry(file, labs)
        if entry.run and (first := taken.setdefault(entry.run.id, file.name)) != file.name:
            entry = replace(entry, state="refused", run=None, reason=f"the same run as {first}")
        found.append(entry)
        progress("verifying bundles", count, len(files))
    return found


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
    run = msgspec.structs.replace(record, fleet=lab)
    doubt = _doubt(verification, labs)
    return SiteEntry(file, "unproven" if doubt else "verified", verification, lab, doubt, run, record.fleet)


def _refusal(found: Verification) -> str:
    if found.error is not None:
        return f"damaged: {found.error}"
    if found.signature is not None and found.signature.state in ("wrong", "unchecked"):
        return signature_text(found.signature)
    if found.differences:
        named = ", ".join(one.field for one in found.differences[:FIGURES_NAMED])
        more = f" and {len(found.differences) - FIGURES_NAMED} more" if len(found.differences) > FIGURES_NAMED else ""
        return f"does not recompute from its raw samples: {named}{more}"
    return ""


def _doubt(found: Verification, labs: Mapping[str, str]) -> str:
    signed = found.signature
    if signed is None or signed.state != "signed":
        return "not signed"
    if labs and signed.fingerprint not in labs:
        return "signed by a key that is not among those of this board"
    if found.other_method:
        return "its energies were computed by another version of the method: neither shown to be right nor wrong"
    return ""
