"""From an item of sound to a model's inputs, call by call: a recording, or features that lie ready in a file (MLPerf Tiny's .bin, .npy).

Features are mel spectrograms and cepstral coefficients, as the card declares them, computed in double precision with numpy alone. Held
against TensorFlow 2.21 (`tf.signal`, as MLPerf Tiny computes those of keyword spotting and of the streaming wake word) and librosa 0.11 (as
MLPerf Tiny computes anomaly detection's, and OpenAI Whisper's): `tests/agent/audio/test_features.py`.
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from edgemeter.agent.audio.recordings import AudioRecording, read_recording
from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract.model_card import AudioInput, Card, Features
from edgemeter.agent.contract.record_conditions import StreamInfo
from edgemeter.agent.datasets.items import Item
from edgemeter.agent.runtimes import Loaded, TensorInfo

Floats = NDArray[np.float64]
# What librosa's users add before the logarithm of a power in decibels.
_EPSILON = float(np.finfo(np.float64).eps)
# Source: tf.signal (HTK's mel scale), and Slaney's Auditory Toolbox as librosa has it: linear up to 1 kHz, logarithmic above.
_HTK_BREAK_HZ, _HTK_Q = 700.0, 1127.0
_SLANEY_STEP_HZ, _SLANEY_BREAK_HZ = 200.0 / 3, 1000.0
_SLANEY_LOG_STEP = math.log(6.4) / 27
# Source: openai/whisper `whisper/audio.py`, log_mel_spectrogram.
_WHISPER_FLOOR, _WHISPER_RANGE = 1e-10, 8.0
# Source: mlcommons/tiny `benchmark/training/streaming_wakeword/get_dataset.py`; below 0 dB the floor plays no part.
_DECIBEL_FLOOR, _DECIBEL_OFFSET, _DECIBEL_RANGE = 1e-30, 52.0, 64.0
# Frames that are transformed at once: of a long recording the spectra of all would fill the memory of a board.
_FRAMES = 4096


def features(samples: NDArray[np.floating], sample_rate_hz: int, settings: Features) -> Floats:
    """Return the features of a recording: float64 [frames, bands or coefficients]; raises ConfigError if it is too short for one frame."""
    waves = samples.astype(np.float64)
    if settings.samples_scale != "none":
        # Keyword spotting of MLPerf Tiny divides by the largest value, its streaming wake word by the magnitude; silence stays silence.
        largest = float(waves.max() if settings.samples_scale == "maximum" else max(waves.max(), -waves.min()))
        waves = waves / largest if largest > 0 else waves
    if settings.pre_emphasis:
        waves[1:] -= settings.pre_emphasis * waves[:-1]
    filters = mel_filters(sample_rate_hz, settings)
    frames = _frames(waves, settings)
    bands = [_magnitudes(frames[first : first + _FRAMES], settings) @ filters for first in range(0, len(frames), _FRAMES)]
    values = _logarithm(np.concatenate(bands), settings)
    if settings.coefficients is not None:
        values = values @ cosines(settings.bands)[:, : settings.coefficients]
    return values[settings.first_frame : settings.end_frame]


def _frames(waves: Floats, settings: Features) -> Floats:
    """Return the frames of a recording, float64 [frames, length]."""
    if settings.centred:
        half = settings.fft // 2
        # Whisper's frames mirror the ends, librosa's since 0.10 continue with silence.
        waves = np.pad(waves, half, mode="reflect" if settings.log == "whisper" and len(waves) > half else "constant")
    length = settings.fft if settings.centred else settings.window
    count = 1 + (len(waves) - length) // settings.hop
    if count < 1 or (settings.log == "whisper" and count < 2):
        raise ConfigError(f"a recording of {len(waves)} samples is shorter than a frame of {length}: leave it out, or set input.samples")
    # Whisper leaves out the last frame.
    return np.lib.stride_tricks.sliding_window_view(waves, length)[:: settings.hop][: count - (settings.log == "whisper")]


def _magnitudes(frames: Floats, settings: Features) -> Floats:
    """Return the magnitudes (to the card's power) of each frame: float64 [frames, fft / 2 + 1]."""
    turn = 2 * np.pi * np.arange(settings.window)
    # Hamming's window reaches from end to end, Hann's is one of a periodic series.
    window = (
        0.54 - 0.46 * np.cos(turn / max(settings.window - 1, 1))
        if settings.taper == "hamming"
        else 0.5 - 0.5 * np.cos(turn / settings.window)
    )
    if (length := frames.shape[1]) > settings.window:
        before = (length - settings.window) // 2
        window = np.pad(window, (before, length - settings.window - before))
    magnitudes = np.abs(np.fft.rfft(frames * window, settings.fft))
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
    if settings.log == "scaled-decibel":
        decibels = 20 / settings.power * np.log10(np.maximum(bands / settings.window, _DECIBEL_FLOOR))
        return np.clip((decibels + _DECIBEL_OFFSET) / _DECIBEL_RANGE, 0, 1)
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


Array = NDArray[Any]
# TorchScript declares no inputs; what is traced or scripted takes float32.
_UNDECLARED = TensorInfo("input", (), "float32")


class FrontEnd:
    """Makes the inputs of one model."""

    def __init__(self, model: Card, loaded: Loaded) -> None:
        if not isinstance(model.input, AudioInput):
            raise ConfigError(f'model {model.name!r} takes no audio: set input.kind = "audio" and its sample_rate_hz in its card')
        if len(loaded.inputs) > 1:
            names = ", ".join(repr(info.name) for info in loaded.inputs)
            raise ConfigError(f"model {model.name!r} takes {len(loaded.inputs)} inputs ({names}), a recording fills one: export it so")
        self._name, self._wanted = model.name, model.input
        self._info = loaded.inputs[0] if loaded.inputs else _UNDECLARED

    def real(self, item: Item) -> list[Array]:
        """Return the values that each call for an item stands for: real ones, or the input's own where they lie ready so.

        Raises:
            ConfigError: it cannot be read, is too short, at another rate, or of another size than the model takes.
            UnavailableError: a library that reads it is missing.
        """
        if item.kind == "audio":
            return self._of_recording(item.file)
        if item.kind != "tensor":
            raise ConfigError(f"item {item.name!r} is of kind {item.kind!r}, and model {self._name!r} takes sound: correct the data")
        return self._of_ready(item)

    def one_call(self, item: Item, noun: str) -> Sequence[Mapping[str, Array]]:
        """Return the one call for an item; `noun` takes no more, for the message."""
        calls = [self.call(values, item) for values in self.real(item)]
        if len(calls) > 1:
            raise ConfigError(f"item {item.name!r} makes {len(calls)} calls, a {noun} one: remove input.features.frames from the card")
        return calls

    def of_stream(self, item: Item) -> tuple[list[Array], StreamInfo]:
        """Return the stored values of each call for a recording that goes on and on, and how fast they come.

        A call takes the card's frames, the next begins a hop later; without frames its samples, and the next begins where they end.

        Raises:
            ConfigError: as `real`, or the card does not say how long a call is.
        """
        audio, settings, recording = self._wanted, self._wanted.features, self._recording(item.file)
        if settings is not None and settings.frames is not None:
            hop, last = settings.hop, settings.fft // 2 if settings.centred else settings.window
            first = (settings.frames - 1) * hop + last
        elif audio.samples is not None:
            hop = first = audio.samples
        else:
            raise ConfigError(
                f"how much of a stream a call of model {self._name!r} takes is unknown: set input.features.frames in its card"
            )
        rate = audio.sample_rate_hz
        if len(recording.samples) < first:
            raise ConfigError(
                f"the recording {str(item.path)!r} lasts {recording.duration_s:.4g} s, a call of model {self._name!r} takes "
                f"{first / rate:.4g} s: give one at least as long"
            )
        if settings is not None and settings.frames is not None:
            endless = msgspec.structs.replace(settings, first_frame=0, end_frame=None)
            values = _windows(self._stored(self._features(recording.samples, endless, item.file)), endless, item.file)
        else:
            pieces = recording.samples[: len(recording.samples) // hop * hop].reshape(-1, hop)
            values = [self._stored(samples if settings is None else self._features(samples, settings, item.file)) for samples in pieces]
        return values, StreamInfo(length_s=recording.duration_s, rate_per_s=rate / hop, inputs=len(values), first_s=first / rate)

    def _recording(self, path: Path) -> AudioRecording:
        audio, recording = self._wanted, read_recording(path)
        if recording.sample_rate_hz != audio.sample_rate_hz:
            raise ConfigError(
                f"the recording {str(path)!r} has {recording.sample_rate_hz} samples a second, model {self._name!r} takes "
                f"{audio.sample_rate_hz}: convert it, for example `sox IN -r {audio.sample_rate_hz} OUT`"
            )
        return recording

    def _of_recording(self, path: Path) -> list[Array]:
        audio, samples = self._wanted, self._recording(path).samples
        if audio.samples is not None:
            samples = np.pad(samples[: audio.samples], (0, max(0, audio.samples - len(samples))))
        if audio.features is None:
            return [samples]
        return _windows(self._features(samples, audio.features, path), audio.features, path)

    def _features(self, samples: NDArray[np.float32], settings: Features, path: Path) -> Floats:
        try:
            return features(samples, self._wanted.sample_rate_hz, settings)
        except ConfigError as error:
            raise ConfigError(f"recording {str(path)!r}: {error}") from error

    def call(self, values: Array, item: Item) -> Mapping[str, Array]:
        """Return the model's input for one call's values: quantised and shaped as it declares."""
        return {self._info.name: self._shaped(self._stored(values), item)}

    def _stored(self, values: Array) -> Array:
        """Return values in the input's own type, real ones quantised."""
        info = self._info
        dtype = np.dtype(info.dtype)
        if dtype.kind in "iu" and values.dtype != dtype:
            bounds = np.iinfo(dtype)
            quantised = values.astype(np.float64) / (info.scale or 1.0)
            is_cut = self._wanted.features is not None and self._wanted.features.quantised == "truncate"
            zero = info.zero_point or 0
            # The zero point is added before what follows the point is cut off: -0.5 and 0.5 become 0 at different places otherwise.
            quantised = np.trunc(quantised + zero) if is_cut else np.rint(quantised) + zero
            values = np.clip(quantised, bounds.min, bounds.max)
        return values.astype(dtype, copy=False)

    def dequantised(self, values: Array) -> NDArray[np.float64]:
        """Return real values, flat, of what `real` gave; of a model of floats in its own precision."""
        info = self._info
        dtype = np.dtype(info.dtype)
        if dtype.kind not in "iu":
            return values.astype(dtype).astype(np.float64).ravel()
        if values.dtype != dtype:
            return values.astype(np.float64).ravel()
        return (values.astype(np.float64).ravel() - (info.zero_point or 0)) * (info.scale or 1.0)

    def _shaped(self, values: Array, item: Item) -> Array:
        """Return the values in the declared shape; a dimension that the model leaves open takes what is left, the first one 1."""
        shape = self._info.shape
        if not shape:
            return values[None]
        sizes = [1 if axis == 0 and size is None else size for axis, size in enumerate(shape)]
        if sizes.count(None) <= 1:
            size = int(np.prod([length for length in sizes if length is not None]))
            if values.size and (values.size % size == 0 if None in sizes else values.size == size):
                return np.ascontiguousarray(values.reshape([-1 if length is None else length for length in sizes]))
        elif len(shape) == values.ndim + 1:
            return values[None]
        raise ConfigError(
            f"item {item.name!r} gives {list(values.shape)} values, model {self._name!r} takes {list(shape)}: correct input.samples or "
            "input.features in its card"
        )

    def _of_ready(self, item: Item) -> list[Array]:
        """Return the features that lie ready: in the input's own type and size, or float32 frames, windowed as the card says."""
        info, settings = self._info, self._wanted.features
        size = int(np.prod([length for length in info.shape if length is not None])) if info.shape else 0
        values = _array(item, np.dtype(info.dtype), size)
        if values.dtype == np.dtype(info.dtype) and values.size == size:
            return [values]
        per_frame = 0 if settings is None else (settings.coefficients or settings.bands)
        if settings is None or values.dtype.kind != "f" or values.size % per_frame or not np.isfinite(values).all():
            raise ConfigError(
                f"item {item.name!r} holds {values.size} values of {values.dtype}, model {self._name!r} takes {size} of {info.dtype}, or "
                "frames of its card's features: correct the data or the card"
            )
        return _windows(values.reshape(-1, per_frame), settings, item.path)


def _windows(frames: Array, settings: Features, path: Path) -> list[Array]:
    count = settings.frames
    if count is not None and len(frames) < count:
        raise ConfigError(f"the recording {str(path)!r} has {len(frames)} frames, and a call takes {count}: leave it out")
    windows = [frames] if count is None else [frames[first : first + count] for first in range(len(frames) - count + 1)]
    return [window.T for window in windows] if settings.layout == "bands-first" else windows


def _array(item: Item, dtype: np.dtype[Any], size: int) -> Array:
    """Return the values in a file: of .npy as it is; else the input's own type where the size fits, or float32."""
    if item.array is not None:
        return item.array
    path = item.file
    try:
        if path.suffix.lower() == ".npy":
            return np.asarray(np.load(path, allow_pickle=False))
        content = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot read {str(path)!r}: {error.strerror}") from error
    except (ValueError, EOFError) as error:
        raise ConfigError(f"{str(path)!r} is not a NumPy array: save it with numpy.save") from error
    if len(content) == size * dtype.itemsize:
        return np.frombuffer(content, dtype)
    if not content or len(content) % 4:
        raise ConfigError(f"{str(path)!r} has {len(content)} bytes, and holds neither the model's input ({size} of {dtype}) nor float32")
    return np.frombuffer(content, "<f4")
