"""Writes each run of a session as one bundle when the run ends."""

import base64
import hashlib
import os
import re
import zlib
from collections.abc import Iterator
from pathlib import Path

from edgemeter.agent.base import durable_file
from edgemeter.agent.base.errors import ConfigError, EdgemeterError
from edgemeter.agent.bundle import archive
from edgemeter.agent.bundle.signature import Signer
from edgemeter.agent.contract.record import RunRecord, encode, split_samples
from edgemeter.agent.session import session


def write_bundle(folder: Path, record: RunRecord, signer: Signer | None = None) -> Path:
    """Write the bundle of a run into `folder` and return its path.

    Raises:
        UnavailableError: it cannot be written.
    """
    path = folder / f"{record.id}.edgemeter"
    durable_file.write(path, archive.pack(_files(record, signer)), 0o644)
    return path


def check_folder(folder: Path) -> None:
    """Create the folder if needed, and check that bundles can be written there.

    Raises:
        ConfigError: they cannot.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(13, "Permission denied")
    except OSError as error:
        raise ConfigError(
            f"cannot write bundles to {str(folder)!r}: {error.strerror}: use another folder"
        ) from error


def _files(record: RunRecord, signer: Signer | None) -> Iterator[tuple[str, bytes]]:
    head, _ = split_samples(encode(record))
    contents = {archive.RECORD: head}
    members = [archive.RunFile(file=archive.RECORD, sha256=hashlib.sha256(head).hexdigest())]
    for series in record.samples:
        stem = re.sub(r"[^A-Za-z0-9._-]", "_", series.name).lstrip(".-")[:80] or "series"
        names = (
            f"samples/{stem}{f'-{number}' if number else ''}.{series.dtype[1:]}"
            for number in range(len(contents) + 1)
        )
        file = next(name for name in names if name not in contents)
        contents[file] = zlib.decompress(base64.b64decode(series.data))
        sha256 = hashlib.sha256(contents[file]).hexdigest()
        members.append(
            archive.RunFile(
                file=file, sha256=sha256, series=series.name, unit=series.unit, dtype=series.dtype
            )
        )
    text = archive.encode_manifest(
        archive.RunManifest(
            record=record.id, written_by=record.environment.agent, members=tuple(members)
        )
    )
    yield archive.MANIFEST_FILE, text
    if signer is not None:
        yield archive.SIGNATURE, signer.sign(text)
        yield archive.SIGNER, signer.public_pem
    yield from contents.items()


class BundleRecorder:
    """A recorder that handles the events of a session before `on_event`.

    It collects failures in `errors`, since a run is worth more than its bundle.
    """

    def __init__(
        self, folder: Path, on_event: session.OnEvent, signer: Signer | None = None
    ) -> None:
        self.written: list[Path] = []
        self.errors: list[EdgemeterError] = []
        self._folder = folder
        self._on_event = on_event
        self._signer = signer

    def __call__(self, event: session.SessionEvent) -> None:
        if isinstance(event, session.RunEnds) and isinstance(event.outcome, RunRecord):
            try:
                self.written.append(write_bundle(self._folder, event.outcome, self._signer))
            except EdgemeterError as error:
                self.errors.append(error)
        self._on_event(event)
