"""Facts about videos in a run: what their frames become, and at which rate they arrive."""

from pathlib import Path

import numpy as np
import pytest

from edgemeter.agent import runtimes
from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.datasets.dataset import open_folder
from edgemeter.agent.engine import loading
from tests.fixtures.played_time import play_time
from tests.fixtures.run_jobs import one_after_the_other, one_case, rapid_run
from tests.fixtures.video_factory import write_video

MODEL = Path(__file__).resolve().parents[3] / "models" / "shipped" / "edgemeter-shapes_int8.tflite"
GREYS = [20 * number for number in range(10)]
pytestmark = [pytest.mark.needs(module="cv2"), pytest.mark.needs(module="ai_edge_litert")]


@pytest.fixture
def video(tmp_path):
    return write_video(tmp_path / "camera.avi", GREYS, 12.5, (320, 240))


def test_frames_are_prepared_in_their_order(video):
    """They are prepared by the model's card as photographs are.

    Each frame is brighter than the one before.
    """
    runtime = runtimes.create("litert")
    try:
        model = loading.load_model(one_case(MODEL, mode="rapid", data=str(video)), runtime)
        calls = loading.prepare_calls(model, model.calls_of(0, 0), 0)[0]
    finally:
        runtime.close()
    brightness = [float(inputs[0].astype(np.float64).mean()) for inputs in calls]
    assert len(calls) == 10
    assert brightness == sorted(brightness)
    assert brightness[0] < brightness[-1]


def test_a_video_is_timed_and_not_scored(video):
    """Its frames are counted, and annotations or a subset of them are refused."""
    run = one_after_the_other(one_case(MODEL, mode="rapid", data=str(video)))
    assert (run.dataset.name, run.dataset.images, run.accuracy) == ("camera.avi", 10, None)
    assert run.reasons["accuracy"].startswith("a video is only timed")
    assert run.output_check.differing == 0
    with pytest.raises(ConfigError, match=r"the video 'camera\.avi' is timed and not scored"):
        open_folder(video, subset=4)


def test_a_camera_has_the_rate_that_is_asked_for(monkeypatch, video):
    """The rate is the video's own unless `rate_per_s` states another."""
    play_time(monkeypatch)
    assert rapid_run(MODEL, data=str(video), scenario="steady").steady.rate_per_s == 12.5
    assert (
        rapid_run(MODEL, data=str(video), scenario="steady", rate_per_s=30.0).steady.rate_per_s
        == 30.0
    )
