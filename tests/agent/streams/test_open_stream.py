"""Facts about `edgemeter.agent.streams.open_stream`: what may be a stream, and what it is as data."""

import numpy as np
import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.streams.open_stream import open_stream
from tests.fixtures.audio_factory import tone, write_recording
from tests.fixtures.video_factory import write_video


def test_a_recording_is_one_item_with_its_windows(tmp_path):
    """Its hash covers both, so that other windows are other data."""
    path = write_recording(tmp_path / "long.wav", tone(440, 2.0))
    windows, later = tmp_path / "windows.json", tmp_path / "later.json"
    windows.write_text("[[0.5, 1.0]]")
    later.write_text("[[0.5, 1.5]]")
    data = open_stream(path, windows)
    assert (data.name, data.is_stream, data.has_truth, data.targets) == ("long.wav", True, True, {"long.wav": ((0.5, 1.0),)})
    assert len({data.sha256, open_stream(path, later).sha256, open_stream(path).sha256}) == 3
    assert not open_stream(path).has_truth


@pytest.mark.needs(module="cv2")
def test_a_videos_frames_are_its_items(tmp_path):
    """In order, each with its own pixels; windows of a video are refused."""
    path = write_video(tmp_path / "grey.avi", np.arange(6) * 40, 12.5)
    data = open_stream(path)
    assert (len(data.items), data.is_stream, data.has_truth) == (6, True, False)
    (tmp_path / "windows.json").write_text("[]")
    with pytest.raises(ConfigError, match=r"grey\.avi' are not scored: leave annotations out"):
        open_stream(path, tmp_path / "windows.json")


def test_what_is_no_stream_is_refused_by_name(tmp_path):
    """A folder, a text, a file that is not there."""
    (tmp_path / "notes.txt").write_text("")
    for path, message in (
        (tmp_path, "is no file"),
        (tmp_path / "absent.wav", "is no file"),
        (tmp_path / "notes.txt", "neither a recording"),
    ):
        with pytest.raises(ConfigError, match=message):
            open_stream(path)
