"""Facts about streams in a run: what a video becomes, how much of it is ready, and that the run says so."""

from pathlib import Path

import numpy as np
import pytest

from edgemeter.agent import runtimes
from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.engine import loading
from edgemeter.agent.engine.confinement import grant_for
from edgemeter.agent.verdict.judge import judge
from tests.fixtures.run_jobs import one_after_the_other, one_case, rapid_run
from tests.fixtures.video_factory import write_video

MODEL = Path(__file__).resolve().parents[3] / "models" / "shipped" / "edgemeter-shapes_int8.tflite"
GREYS = [20 * number for number in range(10)]
pytestmark = [pytest.mark.needs(module="cv2"), pytest.mark.needs(module="ai_edge_litert")]


@pytest.fixture
def video(tmp_path):
    """Return a video of ten frames, 12.5 a second."""
    return write_video(tmp_path / "camera.avi", GREYS, 12.5, (320, 240))


def prepared(case):
    """Return the inputs that would be timed."""
    runtime = runtimes.create("litert")
    try:
        model = loading.load_model(case, runtime)
        return loading.prepare_calls(model, model.calls_of(0, 0), 0).calls
    finally:
        runtime.close()


def test_frames_are_prepared_in_their_order(video):
    """As photographs are, by the model's card: each frame is brighter than the one before."""
    calls = prepared(one_case(MODEL, mode="rapid", stream=str(video)))
    brightness = [float(inputs[0].astype(np.float64).mean()) for inputs in calls]
    assert len(calls) == 10
    assert brightness == sorted(brightness)
    assert brightness[0] < brightness[-1]


def test_a_video_is_timed_and_not_scored(video):
    """Rate and length are the file's; nothing is detected in it that could be right or wrong."""
    run = one_after_the_other(one_case(MODEL, mode="rapid", stream=str(video)))
    stream = run.dataset.stream
    assert (stream.rate_per_s, stream.length_s, stream.inputs, stream.timed) == (12.5, 0.8, 10, 10)
    assert (run.accuracy, run.detections, run.dataset.annotated) == (None, None, False)
    assert run.accuracy_reason.startswith("the stream was only timed")
    assert run.output_check.differing == 0
    assert [note for note in judge(run, ()).notes if note.startswith("stream-repeats")] == []


def test_what_does_not_fit_in_memory_comes_over_and_over_and_is_noted(video, monkeypatch):
    """The first three frames, here; the note counts them."""
    case = one_case(MODEL, mode="rapid", stream=str(video))
    frame_bytes = prepared(case)[0][0].nbytes
    monkeypatch.setattr(loading, "PREPARED_BYTES", 3 * frame_bytes + 1)
    run = one_after_the_other(case)
    assert (run.dataset.stream.inputs, run.dataset.stream.timed) == (10, 3)
    assert [note for note in judge(run, ()).notes if note.startswith("stream-repeats")] == [
        "stream-repeats: the first 3 of 10 inputs of the stream arrived over and over: more do not fit in memory"
    ]


def test_the_sandbox_lets_a_run_read_its_stream(tmp_path, video):
    """And its windows; nothing else of their folder."""
    (tmp_path / "windows.json").write_text("[]")
    case = one_case(MODEL, stream=str(video), annotations=str(tmp_path / "windows.json"))
    assert {video, tmp_path / "windows.json"} <= set(grant_for(case).read)
    assert tmp_path not in grant_for(case).read


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"data": "photos"}, "data is for data that are no stream: leave data or stream out"),
        ({"most_missed": 8}, "most_missed and most_false are of a stream with windows"),
        ({"scenario": "offline"}, "stream is for steady, not for offline and quick"),
    ],
)
def test_settings_of_other_data_are_refused(settings, message):
    """With the key to leave out."""
    with pytest.raises(ConfigError, match=message):
        one_case("m.tflite", stream="a.wav", **settings)


def test_a_camera_has_the_rate_that_is_asked_for(video):
    """The video's own unless `rate_per_s` names another."""
    assert rapid_run(MODEL, stream=str(video)).steady.rate_per_s == 12.5
    assert rapid_run(MODEL, stream=str(video), rate_per_s=30.0).steady.rate_per_s == 30.0
