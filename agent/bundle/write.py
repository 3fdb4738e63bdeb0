"""Writes each run of a session as one bundle, named for its record, as the run ends."""

import base64
import hashlib
import os
import re
import zlib
from collections.abc import Iterator
from pathlib import Path

import msgspec

from edgemeter.agent.base.errors import ConfigError, EdgemeterError
from edgemeter.agent.bundle import archive
from edgemeter.agent.bundle.signature import Signer
from edgemeter.agent.contract.record import RunRecord, Series, encode, split_samples
from edgemeter.agent.contract.suite import Case
from edgemeter.agent.engine import job
from edgemeter.agent.session import session

_PATHS = ("model", "data", "annotations", "predictions")


def write_bundle(folder: Path, record: RunRecord, case: Case | None, suite: bytes | None = None, signer: Signer | None = None) -> Path:
    """Write the bundle of a run into `folder` and return its path; `suite` is the text of the suite's file, where there was one.

    A run from the ledger has no `case`.

    Raises:
        ConfigError: it cannot be written.
    """
    path = folder / f"{record.id}{archive.BUNDLE_SUFFIX}"
    content = archive.pack(bundle_files(record, case, suite, signer))
    partial = path.with_suffix(".partial")
    try:
        partial.write_bytes(content)
        os.replace(partial, path)  # noqa: PTH105 - names what it does to a file that is there already
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise ConfigError(
            f"cannot write the bundle {str(path)!r}: {error.strerror}: free some space, or use another folder (--bundle)"
        ) from error
    return path


def check_folder(folder: Path) -> None:
    """Create the folder where it is missing, and check that bundles can be written there; raises ConfigError if they cannot."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(13, "Permission denied")
    except OSError as error:
        raise ConfigError(f"cannot write bundles to {str(folder)!r}: {error.strerror}: use another folder (--bundle)") from error


def bundle_files(record: RunRecord, case: Case | None, suite: bytes | None, signer: Signer | None) -> Iterator[tuple[str, bytes]]:
    """Yield the files of a bundle in their order: the manifest first, then its signature, then what it lists."""
    head, _ = split_samples(encode(record))
    listed = [(archive.RECORD, head)]
    if case is not None:
        # As it ran, but of paths only the last part, since the folders of a device are private.
        names = {key: Path(value).name for key in _PATHS if (value := getattr(case, key)) is not None}
        listed.append((archive.CASE, archive.encode_document(msgspec.structs.replace(case, **names))))
    if suite is not None:
        listed.append((archive.SUITE, suite))
    series: list[archive.SeriesFile] = []
    for samples in record.samples:
        series.append(_series(samples, {described.file for described in series}))
        listed.append((series[-1].file, zlib.decompress(base64.b64decode(samples.data))))
    members = tuple(
        archive.RunFile(file=name, size_bytes=len(content), sha256=hashlib.sha256(content).hexdigest()) for name, content in listed
    )
    text = archive.encode_document(
        archive.RunManifest(record=record.id, written_by=record.environment.agent, members=members, series=tuple(series))
    )
    yield archive.MANIFEST_FILE, text
    if signer is not None:
        yield archive.SIGNATURE, signer.sign(text)
        yield archive.SIGNER, signer.public_pem
    yield from listed


def _series(samples: Series, used_names: set[str]) -> archive.SeriesFile:
    stem = re.sub(r"[^A-Za-z0-9._-]", "_", samples.name).lstrip(".-")[:80] or "series"
    names = (f"samples/{stem}{'' if count == 1 else f'-{count}'}.{samples.dtype[1:]}" for count in range(1, len(used_names) + 2))
    file = next(name for name in names if name not in used_names)
    return archive.SeriesFile(name=samples.name, unit=samples.unit, dtype=samples.dtype, count=samples.count, file=file)


class BundleRecorder:
    """Handles the events of a session before `on_event` does; collects failures in `errors`, since a run outweighs its bundle."""

    def __init__(self, folder: Path, on_event: session.OnEvent, suite: bytes | None = None, signer: Signer | None = None) -> None:
        self.written: list[Path] = []
        self.errors: list[EdgemeterError] = []
        self._folder = folder
        self._on_event = on_event
        self._suite = suite
        self._signer = signer
        self._begun: session.RunBegins | None = None

    def __call__(self, event: session.RunBegins | job.Event | session.RunEnds) -> None:
        """Handle one event of a session."""
        if isinstance(event, session.RunBegins):
            self._begun = event
        elif isinstance(event, session.RunEnds) and isinstance(event.outcome, RunRecord) and self._begun is not None:
            try:
                self.written.append(write_bundle(self._folder, event.outcome, self._begun.case, self._suite, self._signer))
            except EdgemeterError as error:
                self.errors.append(error)
        self._on_event(event)
