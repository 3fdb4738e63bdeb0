"""A stream as data: a recording is one item of many calls, with its windows as ground truth; of a video each frame is an item."""

from pathlib import Path

from edgemeter.agent.audio.recordings import read_recording
from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.datasets.dataset import Dataset, sha256_of_items
from edgemeter.agent.datasets.items import SOUND, item_of_file
from edgemeter.agent.streams.video import VIDEOS, VideoFrames
from edgemeter.agent.streams.windows import read_windows


def open_stream(path: Path, annotations: Path | None = None) -> Dataset:
    """Return the recording or video in a file.

    Raises:
        ConfigError: it is neither, cannot be read, or the annotations are not its windows.
        UnavailableError: a library that reads it is missing.
    """
    if not path.is_file():
        raise ConfigError(f"the stream {str(path)!r} is no file: give one recording or video")
    item = item_of_file(path.parent, path.name)
    suffix = path.suffix.lower()
    if suffix in SOUND:
        targets = None if annotations is None else {item.name: read_windows(annotations, read_recording(path).duration_s)}
        return Dataset(path.name, (item,), sha256_of_items((item,), annotations), targets=targets, needed=(path,), is_stream=True)
    if suffix not in VIDEOS:
        raise ConfigError(f"the stream {str(path)!r} is neither a recording ({', '.join(SOUND)}) nor a video ({', '.join(VIDEOS)})")
    if annotations is not None:
        raise ConfigError(f"detections in the video {path.name!r} are not scored: leave annotations out, or give its frames as data")
    return Dataset(path.name, VideoFrames(path), sha256_of_items((item,)), needed=(path,), is_stream=True)
