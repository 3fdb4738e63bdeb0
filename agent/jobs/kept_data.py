"""Data sets on the device: unpacked once, beside the other content and in the place of their archive, for every job that needs them."""

import os
import shutil
from pathlib import Path

from edgemeter.agent import durable_file
from edgemeter.agent.errors import UnavailableError
from edgemeter.agent.jobs import data_archive
from edgemeter.agent.jobs.data_archive import DataFolder
from edgemeter.agent.jobs.kept_content import DATA, PART


def opened(archive: Path) -> DataFolder:
    """Return where the data set of the archive at that place in the content stands, unpacked: whole or not at all.

    Raises:
        ConfigError: it is no archive of photographs, or holds what one may not.
        UnavailableError: there is no space, or the folder cannot be written.
    """
    folder = archive.with_name(f"{archive.name}{DATA}")
    try:
        if not folder.is_dir():
            _unpack(archive, folder)
        # Its place is needed more than it is.
        archive.unlink(missing_ok=True)
        return data_archive.find(folder)
    except OSError as error:
        message = f"cannot unpack photographs to {str(folder)!r} ({error.strerror}): check that the folder may be written"
        raise UnavailableError(message) from error


def _unpack(archive: Path, folder: Path) -> None:
    part = folder.with_name(f"{folder.name}{PART}")
    # What the power was cut off from begins again.
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(mode=0o700)
    try:
        data_archive.unpack(archive, part)
        data_archive.find(part)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise
    # Thousands of files at once: one wait for the disk instead of one each.
    os.sync()
    part.rename(folder)
    durable_file.sync_folder(folder.parent)
