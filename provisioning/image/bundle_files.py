"""The files of a bundle that is whole and signed, as they go onto a card; the board checks all of it again."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from edgemeter.agent.errors import ConfigError
from edgemeter.provisioning.bundle import install, manifest
from edgemeter.provisioning.bundle.install import MANIFEST, SIGNATURE, Manifest
from edgemeter.provisioning.image.changes import Content, of_bytes

NEEDED = ("install.py", "supervisor.py")


@dataclass(frozen=True, slots=True)
class BundleFiles:
    """A bundle; `files` by their path in it, manifest and signature among them."""

    manifest: Manifest
    files: dict[str, Content]


@contextmanager
def opened(path: Path, public_key: Path) -> Iterator[BundleFiles]:
    """Open the bundle in a folder or tar, once its signature and every file were found right.

    Raises:
        ConfigError: it is no bundle, one byte of it is not what was signed, or it lacks what a board needs.
    """
    verified = manifest.read(path, public_key)
    try:
        with closing(install.Bundle(path)) as bundle:
            files = {MANIFEST: of_bytes(verified.document), SIGNATURE: of_bytes(bundle.small(SIGNATURE, install.MOST_SIGNATURE_BYTES))}
            files |= {entry.path: Content(entry.size_bytes, partial(bundle.open, entry.path)) for entry in verified.manifest.files}
            lacking = [name for name in NEEDED if name not in files]
            if lacking:
                message = f"the bundle {str(path)!r} has no {' and no '.join(lacking)}, which a board needs: make it again"
                raise ConfigError(message)
            yield BundleFiles(verified.manifest, files)
    except install.RefusedError as error:
        raise ConfigError(str(error)) from error
