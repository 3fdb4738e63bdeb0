"""Facts about features: equal to TensorFlow's and librosa's, which MLPerf Tiny and Whisper compute theirs with.

The reference was computed once from the stored wave by TensorFlow 2.21.0 (`tf.signal`, the graph of MLPerf Tiny's `get_dataset.py`, and
its truncating cast to int8) and librosa 0.11.0 (`file_to_vector_array` of its `common.py`; Whisper's `log_mel_spectrogram`).
"""

from pathlib import Path

import numpy as np
import pytest

from edgemeter.agent.audio.front_end import FrontEnd, features
from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract.model_card import Features
from edgemeter.agent.datasets.items import item_of_file
from edgemeter.agent.recognition.wake_word import wake_word_card
from edgemeter.agent.runtimes import TensorInfo
from tests.fixtures.audio_factory import FEATURES, RATE, make_audio_card, mlperf_card, tone, write_recording
from tests.fixtures.vision_factory import make_loaded, tensors

STORED = Path(__file__).parents[2] / "fixtures" / "audio"
REFERENCE = np.load(STORED / "reference.npz")
WAVE = REFERENCE["wave"].astype(np.float32) / 32768
WHISPER = Features(window=400, hop=160, fft=400, bands=80, mel="slaney", power=2, log="whisper", centred=True)
KEYWORDS = TensorInfo("input_1", (None, 49, 10, 1), "int8", 0.5847029089927673, 83)


def calls_of(card, info, path):
    """Return the inputs that a front end makes of a file."""
    front, item = FrontEnd(card, make_loaded([], [info])), item_of_file(path.parent, path.name)
    return [front.call(values, item)[info.name] for values in front.real(item)]


def test_keyword_spottings_coefficients_are_tensorflows():
    """49 frames of ten, to 1e-5, with the card of the catalogue."""
    coefficients = features(WAVE, RATE, mlperf_card("mlperf-tiny-kws").input.features)
    assert coefficients.shape == (49, 10)
    assert np.abs(coefficients - REFERENCE["kws"]).max() < 1e-5


def test_keyword_spottings_input_is_mlperfs_bit_by_bit(tmp_path):
    """All 490 int8 values, rounded towards 0 as its script does; nearest values would differ in some 200."""
    (values,) = calls_of(mlperf_card("mlperf-tiny-kws"), KEYWORDS, write_recording(tmp_path / "word.wav", WAVE))
    assert (values.shape, values.dtype) == ((1, 49, 10, 1), np.int8)
    assert np.array_equal(values[0, ..., 0], REFERENCE["kws_int8"])


def test_the_streaming_wake_words_features_are_tensorflows(tmp_path):
    """92 frames of a sweep, a rattle, noise and silence to 1e-5; of 3,680 int8 values one lies where single precision rounds it up."""
    stored = np.load(STORED / "wake_word.npz")
    wave = stored["wave"].astype(np.float32) / 32768
    frames = TensorInfo("frames", (1, 30, 1, 40), "int8", 0.003921568859368563, -128)
    card = wake_word_card("strm_ww", "int8", make_loaded(tensors((1, 3)), [frames]))
    computed = features(wave, RATE, card.input.features)
    assert computed.shape == stored["features"].shape == (92, 40)
    assert np.abs(computed - stored["features"]).max() < 1e-5
    path = write_recording(tmp_path / "long.wav", wave)
    write_recording(tmp_path / "short.wav", wave[:8000])
    front, item = FrontEnd(card, make_loaded([], [frames])), item_of_file(tmp_path, path.name)
    with pytest.raises(ConfigError, match=r"short\.wav' lasts 0\.5 s, .* takes 0\.992 s: give one at least as long"):
        front.of_stream(item_of_file(tmp_path, "short.wav"))
    values, stream = front.of_stream(item)
    calls = [front.call(value, item)["frames"] for value in values]
    assert (stream.inputs, stream.rate_per_s, stream.length_s, stream.first_s) == (63, 31.25, 3.0, 0.992)
    frames_int8 = np.array([*(call[0, 0, 0] for call in calls), *calls[-1][0, 1:, 0]])
    assert [frames_int8.shape, int((frames_int8 != stored["int8"]).sum())] == [(92, 40), 1]
    assert all(np.array_equal(call[0, :, 0], frames_int8[first : first + 30]) for first, call in enumerate(calls))


def test_a_long_recording_has_the_features_of_its_parts():
    """Frames are transformed some thousands at once: what comes after them is the same as by itself."""
    long = np.random.default_rng(3).normal(size=160 * 9000).astype(np.float32)
    settings = Features(**FEATURES)
    assert np.allclose(features(long, RATE, settings)[4090:4100], features(long[160 * 4090 : 160 * 4100], RATE, settings), atol=1e-9)


def test_a_stream_of_samples_is_cut_where_a_call_ends(tmp_path):
    """Without frames each call takes the card's samples, and the next what follows; the rest is left out."""
    card, info = make_audio_card("keyword-spotting"), TensorInfo("x", (1, 1600), "float32")
    path = write_recording(tmp_path / "long.wav", np.arange(4000) / 4000)
    values, stream = FrontEnd(card, make_loaded([], [info])).of_stream(item_of_file(tmp_path, path.name))
    assert (stream.inputs, stream.rate_per_s, stream.first_s) == (2, 10.0, 0.1)
    assert np.allclose(np.concatenate(values), np.arange(3200) / 4000, atol=1e-6)
    write_recording(tmp_path / "short.wav", np.zeros(99))
    with pytest.raises(ConfigError, match=r"short\.wav' lasts 0\.006188 s, .* takes 0\.1 s: give one at least as long"):
        FrontEnd(card, make_loaded([], [info])).of_stream(item_of_file(tmp_path, "short.wav"))
    endless = make_audio_card("x", features=FEATURES)
    with pytest.raises(ConfigError, match=r"set input\.features\.frames in its card"):
        FrontEnd(endless, make_loaded([], [info])).of_stream(item_of_file(tmp_path, path.name))


def test_features_that_lie_ready_are_taken_as_they_are(tmp_path):
    """MLPerf Tiny's .bin of keyword spotting is the input itself; one of float32 frames is windowed."""
    (tmp_path / "word.bin").write_bytes(REFERENCE["kws_int8"].tobytes())
    (values,) = calls_of(mlperf_card("mlperf-tiny-kws"), KEYWORDS, tmp_path / "word.bin")
    assert np.array_equal(values[0, ..., 0], REFERENCE["kws_int8"])
    frames = np.arange(7 * 128, dtype=np.float32)
    (tmp_path / "car.bin").write_bytes(frames.tobytes())
    values = calls_of(mlperf_card("mlperf-tiny-ad"), TensorInfo("input_1", (None, 640), "float32"), tmp_path / "car.bin")
    assert [window.tolist() for window in values] == [[frames[first * 128 : first * 128 + 640].tolist()] for first in range(3)]


def test_anomaly_detections_spectrogram_is_librosas(tmp_path):
    """128 bands in decibels to 1e-4 over three seconds; eleven seconds make 196 windows of the central 200 frames."""
    long = np.tile(WAVE, 3)
    settings = Features(window=1024, hop=512, fft=1024, bands=128, mel="slaney", log="decibel", centred=True)
    spectrogram = features(long, RATE, settings)
    assert spectrogram.shape == (94, 128)
    assert np.abs(spectrogram[::10] - REFERENCE["log_mel"]).max() < 1e-4
    card = mlperf_card("mlperf-tiny-ad")
    long = np.tile(WAVE, 11)
    calls = calls_of(card, TensorInfo("input_1", (None, 640), "float32"), write_recording(tmp_path / "car.wav", long))
    expected = features(long, RATE, settings)
    assert len(calls) == 196
    assert np.allclose(calls[7][0], expected[57:62].ravel(), atol=1e-5)


def test_whispers_spectrogram_is_librosas():
    """80 bands by 100 frames a second, scaled as Whisper scales them, to 1e-6."""
    spectrogram = features(np.tile(WAVE, 3), RATE, WHISPER)
    assert spectrogram.shape == (300, 80)
    assert np.abs(spectrogram[::30] - REFERENCE["whisper"]).max() < 1e-6


def test_samples_are_continued_with_silence_or_cut(tmp_path):
    """To the number that the card has; bands first where the model wants them so."""
    card, info = make_audio_card("keyword-spotting"), TensorInfo("x", (1, 1600), "float32")
    (short,) = calls_of(card, info, write_recording(tmp_path / "short.wav", np.ones(100)))
    (long,) = calls_of(card, info, write_recording(tmp_path / "long.wav", np.ones(2000)))
    assert (short.sum(), long.sum()) == (100, 1600)
    card = make_audio_card("keyword-spotting", features=FEATURES | {"layout": "bands-first"})
    path = write_recording(tmp_path / "tone.wav", tone(1000))
    (values,) = calls_of(card, TensorInfo("x", (1, 8, None), "float32"), path)
    assert np.allclose(values[0].T, features(tone(1000), RATE, Features(**FEATURES)), atol=1e-5)


def test_what_does_not_fit_is_refused_by_name(tmp_path):
    """Another rate, too short for a frame, another size, another kind."""
    card, info = make_audio_card("keyword-spotting"), TensorInfo("x", (1, 1600), "float32")
    with pytest.raises(ConfigError, match=r"slow\.wav.* 8000 samples a second, model 'tested' takes 16000"):
        calls_of(card, info, write_recording(tmp_path / "slow.wav", tone(440), rate=8000))
    with pytest.raises(ConfigError, match=r"short\.wav.*50 samples is shorter than a frame of 160"):
        calls_of(make_audio_card("x", features=FEATURES), info, write_recording(tmp_path / "short.wav", np.ones(50)))
    with pytest.raises(ConfigError, match=r"gives \[1600\] values, model 'tested' takes \[1, 99\]"):
        calls_of(card, TensorInfo("x", (1, 99), "float32"), write_recording(tmp_path / "a.wav", tone(440)))
    (tmp_path / "photo.png").write_bytes(b"")
    with pytest.raises(ConfigError, match="is of kind 'image'"):
        calls_of(card, info, tmp_path / "photo.png")
    (tmp_path / "odd.bin").write_bytes(b"abc")
    with pytest.raises(ConfigError, match=r"odd\.bin.* has 3 bytes"):
        calls_of(card, info, tmp_path / "odd.bin")
