"""A stick labelled CIDATA, made beside its final name and given it once it is whole."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from edgemeter.agent.errors import ConfigError
from edgemeter.provisioning.image.detect import STICK
from edgemeter.provisioning.image.fat import make
from edgemeter.provisioning.image.preparing import Order

# Room beside the payload: tables, what clusters round up to, the breadcrumb.
SPARE_BYTES = 8 << 20
MIB = 1 << 20


@contextmanager
def made(path: Path, order: Order, size_bytes: int | None, *, is_dry: bool) -> Iterator[Path]:
    """Yield a new stick, empty, to be prepared; it gets the name `path` when that has worked, and is gone when it has not or `is_dry`.

    Raises:
        ConfigError: there is such a file already, or no stick can have that size.
    """
    if path.exists():
        message = f"{str(path)!r} is there already: name another file for the stick, delete it, or prepare it (leave out --make-stick)"
        raise ConfigError(message)
    needed = sum(content.size_bytes for content in order.bundle.files.values())
    size_bytes = size_bytes if size_bytes is not None else -(-(needed * 5 // 4 + SPARE_BYTES) // MIB) * MIB
    if not path.parent.is_dir():
        message = f"there is no folder {str(path.parent)!r} for the stick: make it, or name another (--make-stick)"
        raise ConfigError(message)
    with tempfile.TemporaryDirectory(prefix=".edgemeter-stick-", dir=path.parent) as folder:
        beside = Path(folder) / path.name
        make.stick(beside, size_bytes, STICK)
        yield beside
        if not is_dry:
            beside.replace(path)
