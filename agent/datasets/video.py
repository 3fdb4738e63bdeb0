"""Frames of a video, by OpenCV and its FFmpeg; one of the two modules that know OpenCV.

The wheel `opencv-python-headless` (Apache-2.0) contains an FFmpeg under the LGPL, for x86-64 and
aarch64, and decodes in software. Other builds of `cv2` work too.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, overload

import numpy as np

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.plugins import import_extra
from edgemeter.agent.datasets.items import Item


class VideoFrames(Sequence[Item]):
    """The frames of a video as items, decoded on access.

    They are uint8 [height, width, 3], RGB, rotated as the file says. In order, each frame is
    decoded once; going back decodes from the first frame again.

    Raises:
        ConfigError: the file is not a readable video.
        UnavailableError: OpenCV is not installed.
    """

    def __init__(self, path: Path) -> None:
        self._opencv = import_extra(
            "cv2", "video", "reading videos needs OpenCV, which is not installed"
        )
        self._path = path
        self._capture = self._open()
        rate = float(self._capture.get(self._opencv.CAP_PROP_FPS))
        if not np.isfinite(rate) or not 0 < rate <= 1000:
            raise ConfigError(
                f"the video {str(path)!r} states no frame rate: write it with one, for example "
                "`ffmpeg -i IN -r 30 OUT`"
            )
        self.rate_per_s = rate
        declared = int(self._capture.get(self._opencv.CAP_PROP_FRAME_COUNT))
        self._count = declared if declared > 0 else self._counted()
        self._next, self._last = 0, np.empty((0, 0, 3), np.uint8)

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> Item: ...
    @overload
    def __getitem__(self, index: slice) -> "list[Item]": ...
    def __getitem__(self, index: int | slice) -> "Item | list[Item]":
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(self._count))]
        if not 0 <= index < self._count:
            raise IndexError(index)
        if index < self._next - 1:
            self._capture, self._next = self._open(), 0
        while self._next <= index:
            self._last = self._decoded()
            self._next += 1
        return Item(f"frame {index + 1}", self._path, "image", array=self._last)

    def _open(self) -> Any:
        # Work around the queries takes one core only.
        capture = self._opencv.VideoCapture(
            str(self._path), self._opencv.CAP_FFMPEG, [self._opencv.CAP_PROP_N_THREADS, 1]
        )
        if not capture.isOpened():
            raise ConfigError(
                f"cannot read the video {str(self._path)!r}: OpenCV cannot decode it; convert "
                "it, for example to H.264"
            )
        return capture

    def _counted(self) -> int:
        """Return the number of frames, for containers that do not state it."""
        capture, count = self._open(), 0
        while capture.grab():
            count += 1
        if not count:
            raise ConfigError(
                f"the video {str(self._path)!r} has no frame that can be decoded: fetch it again"
            )
        return count

    def _decoded(self) -> Any:
        is_read, pixels = self._capture.read()
        if not is_read:
            raise ConfigError(
                f"the video {str(self._path)!r} ends after {self._next} of {self._count} frames: "
                "fetch it again"
            )
        return np.ascontiguousarray(pixels[..., ::-1])
