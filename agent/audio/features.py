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


def features(samples: NDArray[np.floating], sample_rate_hz: int, settings: Features) -> Floats:
    """Return the features of a recording: float64 [frames, bands or coefficients]; raises ConfigError if it is too short for one frame."""
    waves = samples.astype(np.float64)
    if settings.samples_scale == "maximum":
        # MLPerf Tiny divides by the largest value, not the largest magnitude; silence stays silence.
        largest = float(waves.max())
        waves = waves / largest if largest > 0 else waves
    bands = spectrogram(waves, settings) @ mel_filters(sample_rate_hz, settings)
    values = _logarithm(bands, settings)
    if settings.coefficients is not None:
        values = values @ cosines(settings.bands)[:, : settings.coefficients]
    return values[settings.first_frame : settings.end_frame]


def spectrogram(waves: Floats, settings: Features) -> Floats:
    """Return the magnitudes (to the card's power) of each frame: float64 [frames, fft / 2 + 1]; the Hann window is periodic."""
    if settings.centred:
        half = settings.fft // 2
        # Whisper's frames mirror the ends, librosa's since 0.10 continue with silence.
        waves = np.pad(waves, half, mode="reflect" if settings.log == "whisper" and len(waves) > half else "constant")
    length = settings.fft if settings.centred else settings.window
    count = 1 + (len(waves) - length) // settings.hop
    if count < 1 or (settings.log == "whisper" and count < 2):
        raise ConfigError(f"a recording of {len(waves)} samples is shorter than a frame of {length}: leave it out, or set input.samples")
    frames = np.lib.stride_tricks.sliding_window_view(waves, length)[:: settings.hop][:count]
    window = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(settings.window) / settings.window)
    if length > settings.window:
        before = (length - settings.window) // 2
        window = np.pad(window, (before, length - settings.window - before))
    # Whisper leaves out the last frame.
    magnitudes = np.abs(np.fft.rfft(frames * window, settings.fft))[: -1 if settings.log == "whisper" else None]
    return magnitudes if settings.power == 1 else magnitudes * magnitudes


def mel_filters(sample_rate_hz: int, settings: Features) -> Floats:
    """Return triangular filters, equally wide on the mel scale: float64 [fft / 2 + 1, bands].

    `htk` as TensorFlow has them (straight on the mel scale, the constant left out), `slaney` as librosa (straight in Hz, of equal area).
    """
    high = sample_rate_hz / 2 if settings.high_hz is None else settings.high_hz
    hertz = np.linspace(0, sample_rate_hz / 2, settings.fft // 2 + 1)
    if settings.mel == "htk":
        scale, low_mel, high_mel = _htk(hertz), *_htk(np.array([settings.low_hz, high]))
        edges = np.linspace(low_mel, high_mel, settings.bands + 2)
        filters = _triangles(scale, edges)
        filters[0] = 0
        return filters
    low_mel, high_mel = _slaney(settings.low_hz), _slaney(high)
    edges = np.array([_from_slaney(mel) for mel in np.linspace(low_mel, high_mel, settings.bands + 2)])
    return np.asarray(_triangles(hertz, edges) * (2 / (edges[2:] - edges[:-2])))


def cosines(bands: int) -> Floats:
    """Return the orthonormal cosine transform as TensorFlow's cepstral coefficients have it: float64 [bands, bands].

    The first is not divided by the square root of two, as HTK has it.
    """
    places = np.arange(bands)
    return np.asarray(2 * np.cos(np.pi * places[None, :] * (2 * places[:, None] + 1) / (2 * bands)) / math.sqrt(2 * bands))


def _logarithm(bands: Floats, settings: Features) -> Floats:
    if settings.log == "natural":
        return np.asarray(np.log(bands + settings.offset))
    if settings.log == "decibel":
        return np.asarray(20 / settings.power * np.log10(bands + _EPSILON))
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
