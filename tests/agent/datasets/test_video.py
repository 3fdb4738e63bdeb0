"""Facts about `edgemeter.agent.datasets.video`.

Frames come in order, at the rate that the file states.
"""

import sys

import numpy as np
import pytest

from edgemeter.agent.base.errors import ConfigError, UnavailableError
from edgemeter.agent.datasets.video import VideoFrames
from tests.fixtures.video_factory import write_video

GREYS = [10 + 20 * number for number in range(12)]


def brightness(item):
    """Return the grey of the right half of a frame."""
    return round(float(item.array[:, 40:].mean()))


def test_frames_come_in_order_at_the_files_rate(tmp_path):
    """Each frame has its own pixels in RGB and its number, and the rate is the container's."""
    frames = VideoFrames(write_video(tmp_path / "grey.mp4", GREYS, 12.5, codec="mp4v"))
    assert (len(frames), frames.rate_per_s) == (12, pytest.approx(12.5))
    assert [
        abs(brightness(item) - grey) <= 4 for item, grey in zip(frames, GREYS, strict=True)
    ] == [True] * 12
    red = frames[3].array[:, :24].reshape(-1, 3).mean(0)
    assert np.abs(red - (200, 0, 0)).max() < 30
    assert (frames[3].name, frames[3].kind, frames[3].array.shape, frames[3].array.dtype) == (
        "frame 4",
        "image",
        (48, 64, 3),
        np.uint8,
    )


def test_a_frame_is_the_same_whichever_was_asked_for_before(tmp_path):
    """Going backwards starts the video again, and the last frame may be asked for again."""
    frames = VideoFrames(write_video(tmp_path / "grey.avi", GREYS, 10))
    first = [frames[index].array for index in (7, 7, 2, 11, 0)]
    assert [brightness(item) for item in frames[5:8]] == [
        brightness(frames[index]) for index in (5, 6, 7)
    ]
    reopened = VideoFrames(tmp_path / "grey.avi")
    assert all(
        np.array_equal(array, reopened[index].array)
        for array, index in zip(first, (7, 7, 2, 11, 0), strict=True)
    )
    with pytest.raises(IndexError):
        frames[12]


def test_what_is_no_video_is_one_line(tmp_path):
    """Noise, an empty file and a video that is cut short of its stated length are refused."""
    (tmp_path / "noise.mp4").write_bytes(bytes(range(256)) * 20)
    (tmp_path / "empty.mkv").write_bytes(b"")
    for name in ("noise.mp4", "empty.mkv"):
        with pytest.raises(ConfigError, match=f"cannot read the video .*{name}"):
            VideoFrames(tmp_path / name)
    content = write_video(tmp_path / "grey.mp4", GREYS, 10, codec="mp4v").read_bytes()
    (tmp_path / "cut.mp4").write_bytes(content[: len(content) // 3])
    with pytest.raises(ConfigError, match=r"cut\.mp4"):
        list(VideoFrames(tmp_path / "cut.mp4"))


def test_without_opencv_its_extra_is_named(tmp_path, monkeypatch):
    """The error is one line with the command that installs OpenCV."""
    monkeypatch.setitem(sys.modules, "cv2", None)
    with pytest.raises(
        UnavailableError, match=r"reading videos needs OpenCV, .*pip install 'edgemeter\[video\]'"
    ):
        VideoFrames(tmp_path / "any.mp4")
