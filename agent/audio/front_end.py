"""From an item of sound to a model's inputs, call by call: a recording, or features that lie ready in a file (MLPerf Tiny's .bin, .npy)."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgemeter.agent.audio.features import features
from edgemeter.agent.audio.recordings import AudioRecording, read_recording
from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract.model_card import AudioInput, Card, Features
from edgemeter.agent.datasets.items import Item
from edgemeter.agent.runtimes import Loaded, TensorInfo

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

    def _of_recording(self, path: Path) -> list[Array]:
        audio = self._wanted
        samples = self._of_rate(read_recording(path), path).samples
        if audio.samples is not None:
            samples = np.pad(samples[: audio.samples], (0, max(0, audio.samples - len(samples))))
        if audio.features is None:
            return [samples]
        try:
            frames = features(samples, audio.sample_rate_hz, audio.features)
        except ConfigError as error:
            raise ConfigError(f"recording {str(path)!r}: {error}") from error
        return _windows(frames, audio.features, path)

    def _of_rate(self, recording: AudioRecording, path: Path) -> AudioRecording:
        if recording.sample_rate_hz != self._wanted.sample_rate_hz:
            raise ConfigError(
                f"the recording {str(path)!r} has {recording.sample_rate_hz} samples a second, model {self._name!r} takes "
                f"{self._wanted.sample_rate_hz}: convert it, for example `sox IN -r {self._wanted.sample_rate_hz} OUT`"
            )
        return recording

    def call(self, values: Array, item: Item) -> Mapping[str, Array]:
        """Return the model's input for one call's values: quantised and shaped as it declares."""
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
        return {info.name: self._shaped(values.astype(dtype, copy=False), item)}

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
