"""A folder of photographs, for the page: small copies of those that the kept predictions of a run name, and of no other file."""

import base64
import threading
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract.kept_predictions import KeptPhotograph
from edgemeter.agent.vision import photograph as photographs
from edgemeter.collector.web.view import address

PHOTOGRAPH = "photograph"
# Sharp where three share the width of a page.
LONGEST_PX, QUALITY = 840, 80
COPIES_KEPT = 64
# A server opens photographs one at a time, and none that takes more than 0.3 GB in memory.
MOST_PIXELS = 100_000_000
_one_at_a_time = threading.Lock()


@dataclass(frozen=True, slots=True)
class PhotographFolder:
    """The folder; the name in the predictions is a path within it.

    Raises UnavailableError if Pillow is not installed, ConfigError if it is no folder.
    """

    path: Path

    def __post_init__(self) -> None:
        photographs.pillow()
        if not self.path.is_dir():
            raise ConfigError(f"the folder {str(self.path)!r} does not exist: give that of the photographs")

    def address(self, run_id: str, photograph: KeptPhotograph) -> str:
        """Return where the served page has the copy; raises ConfigError, which says why there is none."""
        self._file(photograph)
        return f"/{address(PHOTOGRAPH, {'run': run_id, 'name': photograph.name})}"

    def data_address(self, photograph: KeptPhotograph) -> str:
        """Return the copy as an address that holds it; raises ConfigError, which says why there is none."""
        return f"data:image/jpeg;base64,{base64.b64encode(self.copy(photograph)).decode()}"

    def copy(self, photograph: KeptPhotograph) -> bytes:
        """Return the copy, a JPEG file; raises ConfigError, which says why there is none."""
        file = self._file(photograph)
        return _copy(file, file.stat().st_mtime_ns)

    def _file(self, photograph: KeptPhotograph) -> Path:
        missing = ConfigError("it is not in the folder of photographs")
        try:
            folder = self.path.resolve()
            file = (folder / photograph.name).resolve()
            if not file.is_relative_to(folder) or not file.is_file():
                raise missing
        # Too long a name, one with a null in it, links in a circle.
        except (OSError, ValueError, RuntimeError) as error:
            raise missing from error
        width, height = _size(file)
        if (width, height) != (photograph.width, photograph.height):
            raise ConfigError(f"the file of this name is another: {width:,} x {height:,} pixels")
        if width * height > MOST_PIXELS:
            raise ConfigError(f"it is too large to be shown: more than {MOST_PIXELS / 1e6:.0f} megapixels")
        return file


def _size(file: Path) -> tuple[int, int]:
    try:
        return photographs.size(file)
    except ConfigError as error:
        raise ConfigError("the file cannot be read as a photograph") from error


@lru_cache(maxsize=COPIES_KEPT)
def _copy(file: Path, _changed_ns: int) -> bytes:
    with _one_at_a_time:
        return photographs.small_jpeg(file, LONGEST_PX, QUALITY)
