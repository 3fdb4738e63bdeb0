"""From samples to what an acoustic model takes: mel spectrograms and cepstral coefficients, as the card declares them.

Computed in double precision with numpy alone. Held against TensorFlow 2.21 (`tf.signal`, as MLPerf Tiny computes keyword spotting's) and
librosa 0.11 (as MLPerf Tiny computes anomaly detection's, and OpenAI Whisper's): `tests/agent/audio/test_features.py`.
"""

import math

import numpy as np
from numpy.typing import NDArray

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract.model_card import Features

Floats = NDArray[np.float64]
# What librosa's users add before the logarithm of a power in decibels.
_EPSILON = float(np.finfo(np.float64).eps)
# Source: tf.signal (HTK's mel scale), and Slaney's Auditory Toolbox as librosa has it: linear up to 1 kHz, logarithmic above.
_HTK_BREAK_HZ, _HTK_Q = 700.0, 1127.0
_SLANEY_STEP_HZ, _SLANEY_BREAK_HZ = 200.0 / 3, 1000.0
_SLANEY_LOG_STEP = math.log(6.4) / 27
# Source: openai/whisper `whisper/audio.py`, log_mel_spectrogram.
_WHISPER_FLOOR, _WHISPER_RANGE = 1e-10, 8.0


def features(samples: NDArray[np.floating], sample_rate_hz: int, wanted: Features) -> Floats:
    """Return the features of a recording: float64 [frames, bands or coefficients].

    Raises:
        ConfigError: it is too short for one frame.
    """
    waves = samples.astype(np.float64)
    if wanted.samples_scale == "maximum":
        # MLPerf Tiny divides by the largest value, not the largest magnitude; silence stays silence.
        largest = float(waves.max())
        waves = waves / largest if largest > 0 else waves
    bands = spectrogram(waves, wanted) @ mel_filters(sample_rate_hz, wanted)
    values = _logarithm(bands, wanted)
    if wanted.coefficients is not None:
        values = values @ cosines(wanted.bands)[:, : wanted.coefficients]
    return values[wanted.first_frame : wanted.end_frame]


def spectrogram(waves: Floats, wanted: Features) -> Floats:
    """Return the magnitudes (to the card's power) of each frame: float64 [frames, fft / 2 + 1]; the Hann window is periodic."""
    if wanted.centred:
        half = wanted.fft // 2
        # Whisper's frames mirror the ends, librosa's since 0.10 continue with silence.
        waves = np.pad(waves, half, mode="reflect" if wanted.log == "whisper" and len(waves) > half else "constant")
    length = wanted.fft if wanted.centred else wanted.window
    count = 1 + (len(waves) - length) // wanted.hop
    if count < 1 or (wanted.log == "whisper" and count < 2):
        raise ConfigError(f"a recording of {len(waves)} samples is shorter than a frame of {length}: leave it out, or set input.samples")
    frames = np.lib.stride_tricks.sliding_window_view(waves, length)[:: wanted.hop][:count]
    window = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(wanted.window) / wanted.window)
    if length > wanted.window:
        before = (length - wanted.window) // 2
        window = np.pad(window, (before, length - wanted.window - before))
    # Whisper leaves out the last frame.
    found = np.abs(np.fft.rfft(frames * window, wanted.fft))[: -1 if wanted.log == "whisper" else None]
    return found if wanted.power == 1 else found * found


def mel_filters(sample_rate_hz: int, wanted: Features) -> Floats:
    """Return triangular filters, equally wide on the mel scale: float64 [fft / 2 + 1, bands].

    `htk` as TensorFlow has them (straight on the mel scale, the constant left out), `slaney` as librosa (straight in Hz, of equal area).
    """
    high = sample_rate_hz / 2 if wanted.high_hz is None else wanted.high_hz
    hertz = np.linspace(0, sample_rate_hz / 2, wanted.fft // 2 + 1)
    if wanted.mel == "htk":
        scale, low_mel, high_mel = _htk(hertz), *_htk(np.array([wanted.low_hz, high]))
        edges = np.linspace(low_mel, high_mel, wanted.bands + 2)
        found = _triangles(scale, edges)
        found[0] = 0
        return found
    low_mel, high_mel = _slaney(wanted.low_hz), _slaney(high)
    edges = np.array([_from_slaney(mel) for mel in np.linspace(low_mel, high_mel, wanted.bands + 2)])
    return np.asarray(_triangles(hertz, edges) * (2 / (edges[2:] - edges[:-2])))


def cosines(bands: int) -> Floats:
    """Return the orthonormal cosine transform as TensorFlow's cepstral coefficients have it: float64 [bands, bands].

    The first is not divided by the square root of two, as HTK has it.
    """
    places = np.arange(bands)
    return np.asarray(2 * np.cos(np.pi * places[None, :] * (2 * places[:, None] + 1) / (2 * bands)) / math.sqrt(2 * bands))


def _logarithm(bands: Floats, wanted: Features) -> Floats:
    if wanted.log == "natural":
        return np.asarray(np.log(bands + wanted.offset))
    if wanted.log == "decibel":
        return np.asarray(20 / wanted.power * np.log10(bands + _EPSILON))
    values = np.log10(np.maximum(bands, _WHISPER_FLOOR))
    return np.asarray((np.maximum(values, values.max() - _WHISPER_RANGE) + 4) / 4)


def _triangles(scale: Floats, edges: Floats) -> Floats:
    lower, centre, upper = edges[:-2], edges[1:-1], edges[2:]
    rising = (scale[:, None] - lower) / (centre - lower)
    falling = (upper - scale[:, None]) / (upper - centre)
    return np.asarray(np.maximum(0, np.minimum(rising, falling)))


def _htk(hertz: Floats) -> Floats:
    return np.asarray(_HTK_Q * np.log(1 + hertz / _HTK_BREAK_HZ))


def _slaney(hertz: float) -> float:
    if hertz < _SLANEY_BREAK_HZ:
        return hertz / _SLANEY_STEP_HZ
    return _SLANEY_BREAK_HZ / _SLANEY_STEP_HZ + math.log(hertz / _SLANEY_BREAK_HZ) / _SLANEY_LOG_STEP


def _from_slaney(mel: float) -> float:
    linear = _SLANEY_BREAK_HZ / _SLANEY_STEP_HZ
    return mel * _SLANEY_STEP_HZ if mel < linear else _SLANEY_BREAK_HZ * math.exp((mel - linear) * _SLANEY_LOG_STEP)
