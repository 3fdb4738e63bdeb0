"""Facts about `edgemeter.agent.tasks.wake_word`: detections of a model that hears a tone, against windows that are planted."""

import json
import os

import msgspec
import numpy as np
import pytest

from edgemeter.agent import runtimes, tasks
from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.datasets.dataset import open_folder
from edgemeter.agent.recognition.recognise import recognise
from edgemeter.agent.streams.open_stream import open_stream
from edgemeter.agent.verdict.judge import judge
from tests.fixtures.audio_factory import write_recording
from tests.fixtures.command import edgemeter
from tests.fixtures.run_jobs import one_after_the_other, one_case, rapid_run
from tests.fixtures.video_factory import write_video
from tests.fixtures.vision_factory import make_loaded, tensors
from tests.fixtures.wake_word_factory import recording, write_model

# The tone of 20 s is in no window, and at 27 s there is none.
WORDS_S, WINDOWS = (3.0, 10.0, 20.0), [[3.0, 4.0], [10.2, 10.9], [27.0, 28.0]]


@pytest.fixture
def paths(tmp_path):
    """Write model, recording and windows; return their paths."""
    (tmp_path / "long_wav_ww_windows.json").write_text(json.dumps(WINDOWS))
    model = write_model(tmp_path / "strm_ww_int8.tflite")
    return model, write_recording(tmp_path / "long_wav.wav", recording(30, WORDS_S)), tmp_path / "long_wav_ww_windows.json"


def heard(model, data, **output):
    """Return the task after all calls of the data."""
    runtime = runtimes.create("litert")
    loaded = runtime.load(model, runtimes.Options())
    card, _ = recognise(model, loaded)
    task = tasks.create(msgspec.structs.replace(card, output=msgspec.structs.replace(card.output, **output)), loaded, data)
    outputs = []
    for inputs in tasks.prepared(task, 0, loaded):
        runtime.bind(inputs)()
        outputs.append(runtime.outputs())
    task.predict(0, outputs)
    runtime.close()
    return task


def test_planted_words_are_found_and_the_others_are_false(paths):
    """Two of three windows, one false, each with its exact bounds; moments are the ends of what was heard."""
    model, wav, windows = paths
    detections = heard(model, open_stream(wav, windows)).detections()
    assert (detections.label, detections.threshold, detections.stream_s, detections.windows) == ("marvin", 0.95, 30.0, 3)
    assert (detections.found, detections.missed, detections.false) == (2, 1, 1)
    assert (detections.missed_low_ratio, detections.missed_high_ratio) == pytest.approx((0.0084, 0.9057), abs=1e-4)
    assert (detections.false_per_h, detections.false_per_h_low, detections.false_per_h_high) == pytest.approx(
        (120.0, 3.04, 668.6), rel=1e-3
    )
    words = {int(moment) for moment in detections.detected_at_s}
    assert words == {3, 4, 10, 11, 20, 21}
    calls = (np.array(detections.detected_at_s) - 0.992) / 0.032
    assert np.allclose(calls, np.rint(calls), atol=1e-4)
    assert detections.windows_s == tuple(map(tuple, WINDOWS))


def test_without_windows_nothing_is_counted(paths):
    """And an empty list of them makes every detection false."""
    model, wav, windows = paths
    assert heard(model, open_stream(wav)).detections() is None
    windows.write_text("[]")
    detections = heard(model, open_stream(wav, windows)).detections()
    assert (detections.windows, detections.missed, detections.false) == (0, 0, 3)
    assert (detections.missed_ratio, detections.missed_high_ratio) == (None, None)


def test_the_threshold_is_the_cards_and_is_exceeded(paths):
    """A score of exactly the threshold is none: above the highest there is nothing."""
    model, wav, windows = paths
    assert heard(model, open_stream(wav, windows), score_threshold=255 / 256).detections().detected_at_s == ()
    assert heard(model, open_stream(wav, windows), score_threshold=254 / 256).detections().found == 2


def test_the_same_outputs_have_all_detections_in_common(paths):
    """And outputs that detect nothing have none with those that do."""
    model, wav, windows = paths
    task = heard(model, open_stream(wav, windows))
    loud, quiet = [[np.array([[127, -128, -128]], np.int8)]], [[np.array([[-128, 127, -128]], np.int8)]]
    assert [task.same_predictions(0, first, second) for first, second in ((loud, loud), (loud, quiet), (quiet, quiet))] == [1.0, 0.0, None]


def test_logits_count_as_their_softmax(paths):
    """Of a model without one: 4 against 0 and 0 is 0.965, 3 is 0.909."""
    model, wav, windows = paths
    task = heard(model, open_stream(wav, windows))
    task._loaded = make_loaded(tensors((1, 3)), [])
    logits = [[np.array([[value, 0, 0]], np.float32)] for value in (4.0, 3.0, -1.0)]
    assert task._in_calls(logits).tolist() == [True, False, False]
    assert task._in_calls([[np.array([[0.96, 0.02, 0.02]], np.float32)]]).tolist() == [True]


@pytest.mark.needs(module="cv2")
def test_what_does_not_fit_is_refused_by_name(paths, tmp_path):
    """A class that the model does not have, no class at all, a video, a folder of data."""
    model, wav, windows = paths
    with pytest.raises(ConfigError, match=r"gives 3 scores, and output\.detected in its card is 3"):
        heard(model, open_stream(wav, windows), detected=3)
    with pytest.raises(ConfigError, match=r"set output\.detected in its card"):
        heard(model, open_stream(wav, windows), detected=None)
    with pytest.raises(ConfigError, match=r"does not take what the stream 'grey\.avi' holds"):
        heard(model, open_stream(write_video(tmp_path / "grey.avi", [0, 100], 10)))
    with pytest.raises(ConfigError, match="give --stream RECORDING in place of --data"):
        heard(model, open_folder(tmp_path))


def test_a_run_has_its_detections_and_times_the_stream_in_order(paths):
    """Every call of the recording is ready, without a copy of each; the score of the whole follows the timed part."""
    model, wav, windows = paths
    case = one_case(model, mode="rapid", stream=str(wav), annotations=str(windows), most_missed=0, most_false=1)
    assert (case.scenario, case.rate_per_s) == ("steady", None)
    # Any scenario does, but for the rate.
    run = one_after_the_other(case)
    assert (run.detections.found, run.detections.false, run.accuracy) == (2, 1, None)
    assert run.accuracy_reason == "a stream has missed windows and false detections in place of an accuracy"
    stream = run.dataset.stream
    assert (stream.inputs, stream.timed, stream.rate_per_s, stream.length_s) == (907, 907, 31.25, 30.0)
    assert run.memory.prepared_inputs_mb == pytest.approx(936 * 40 / 1e6)
    verdict = judge(run, ())
    assert [reason for reason in verdict.reasons if reason.startswith("missed-or-false")] == [
        "missed-or-false: 1 of 3 windows were missed, accepted are 0"
    ]


def test_a_recording_is_heard_at_its_own_speed(paths, tmp_path):
    """By the command, without a card: 31.25 calls a second, the duty cycle, and the detections in place of an accuracy."""
    model, wav, windows = paths
    options = ("--mode", "rapid", "--repeats", "1", "--power", "none")
    completed = edgemeter(
        "run", model, "--stream", wav, "--annotations", windows, *options, env={**os.environ, "EDGEMETER_HOME": str(tmp_path / "home")}
    )
    assert completed.returncode == 0, completed.stderr
    assert "no accuracy" not in completed.stdout
    run = rapid_run(model, stream=str(wav), annotations=str(windows))
    assert (run.steady.rate_per_s, run.load.target_per_s) == (31.25, 31.25)
    assert run.load.utilisation_ratio > 0
