"""Recordings: the samples of WAV files, read here, and of FLAC and what else libsndfile knows, read by soundfile (extra `audio`).

WAV: PCM of 8, 16, 24 and 32 bits, float of 32 and 64, also as WAVE_FORMAT_EXTENSIBLE. Channels are averaged, as librosa and soundfile's
users do. Nothing is resampled: a model hears another pitch and speed at another rate, and every resampler gives other samples; a
recording at another rate than the card's is refused.
"""

import struct
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgemeter.agent.base.errors import ConfigError, UnavailableError, one_line
from edgemeter.agent.datasets.items import read_bytes

Samples = NDArray[np.float32]
# Source: Microsoft, Multiple Channel Audio Data and WAVE Files (mmreg.h).
_PCM, _FLOAT, _EXTENSIBLE = 1, 3, 0xFFFE
# What writes to a pipe cannot return to the header: FFmpeg leaves 0xFFFFFFFF there, SoX this, GStreamer 0.
_UNKNOWN_SIZE = 0x7FFFF000
_FULL_SCALE = {8: 128.0, 16: 32768.0, 24: 8388608.0, 32: 2147483648.0}


@dataclass(frozen=True, slots=True)
class AudioRecording:
    """One channel of samples: float32 [n], -1..1 at full scale, `sample_rate_hz` per second."""

    samples: Samples
    sample_rate_hz: int

    @property
    def duration_s(self) -> float:
        """Return how long it lasts."""
        return len(self.samples) / self.sample_rate_hz


def read_recording(path: Path) -> AudioRecording:
    """Return the recording in a file.

    Raises:
        ConfigError: it cannot be read, is garbled, truncated, empty, or holds values that are no numbers.
        UnavailableError: it is no WAV file, and soundfile is not installed.
    """
    content = read_bytes(path, "the recording")
    recording = _wav(content, path) if content[:4] == b"RIFF" or path.suffix.lower() == ".wav" else _by_soundfile(path)
    if not len(recording.samples):
        raise ConfigError(f"the recording {str(path)!r} holds no samples: record it again")
    if not np.isfinite(recording.samples).all():
        raise ConfigError(f"the recording {str(path)!r} holds samples that are not finite numbers: record it again")
    return recording


def write_wav(path: Path, recording: AudioRecording) -> None:
    """Write a recording as float32 WAV, which loses nothing."""
    data = np.ascontiguousarray(recording.samples, "<f4").tobytes()
    rate = recording.sample_rate_hz
    form = struct.pack("<4sIHHIIHH", b"fmt ", 16, _FLOAT, 1, rate, 4 * rate, 4, 32)
    body = b"WAVE" + form + struct.pack("<4sI", b"data", len(data)) + data
    path.write_bytes(struct.pack("<4sI", b"RIFF", len(body)) + body)


def _wav(content: bytes, path: Path) -> AudioRecording:
    if content[:4] != b"RIFF" or content[8:12] != b"WAVE":
        raise ConfigError(f"the recording {str(path)!r} is not a WAV file: fetch it again, or name it by what it is")
    form, position = None, 12
    while position + 8 <= len(content):
        name, size = content[position : position + 4], int.from_bytes(content[position + 4 : position + 8], "little")
        chunk = content[position + 8 : position + 8 + size]
        if name == b"fmt " and len(chunk) >= 16:
            form = chunk
        if name == b"data" and form is not None:
            ends = 8 + int.from_bytes(content[4:8], "little")
            if size == 0 and not position + 8 < ends <= len(content):
                chunk = content[position + 8 :]
            elif len(chunk) < size < _UNKNOWN_SIZE:
                raise ConfigError(f"the recording {str(path)!r} ends after {len(chunk)} of {size} bytes: fetch it again")
            return _decoded(form, chunk, path)
        # Chunks begin at even places.
        position += 8 + size + size % 2
    raise ConfigError(f"the recording {str(path)!r} has no samples (chunks `fmt ` and `data`): fetch it again")


def _decoded(form: bytes, data: bytes, path: Path) -> AudioRecording:
    kind, channels, rate, _, frame_bytes, bits = struct.unpack("<HHIIHH", form[:16])
    if kind == _EXTENSIBLE and len(form) >= 26:
        kind = int.from_bytes(form[24:26], "little")
    is_supported = (kind == _PCM and bits in _FULL_SCALE) or (kind == _FLOAT and bits in (32, 64))
    if not is_supported or not channels or not rate or frame_bytes != channels * bits // 8:
        raise ConfigError(f"the recording {str(path)!r} is WAV of format {kind}, {bits} bits: write it as PCM of 8 to 32 bits, or float")
    data = data[: len(data) - len(data) % frame_bytes]
    values = _real(data, kind, bits).reshape(-1, channels)
    samples = values[:, 0] if channels == 1 else values.mean(axis=1)
    return AudioRecording(samples.astype(np.float32), rate)


def _real(data: bytes, kind: int, bits: int) -> NDArray[Any]:
    if kind == _FLOAT:
        return np.frombuffer(data, f"<f{bits // 8}")
    if bits == 8:
        return (np.frombuffer(data, np.uint8).astype(np.float32) - 128) / _FULL_SCALE[8]
    if bits == 24:
        wide = np.zeros((len(data) // 3, 4), np.uint8)
        wide[:, 1:] = np.frombuffer(data, np.uint8).reshape(-1, 3)
        return np.asarray(wide.view("<i4").ravel() / np.float64(_FULL_SCALE[32]))
    return np.asarray(np.frombuffer(data, f"<i{bits // 8}") / np.float64(_FULL_SCALE[bits]))


def _by_soundfile(path: Path) -> AudioRecording:
    try:
        library = import_module("soundfile")
    except (ImportError, OSError) as error:
        raise UnavailableError("FLAC needs soundfile, which is not installed: pip install 'edgemeter[audio]', or give WAV") from error
    try:
        values, rate = library.read(str(path), dtype="float32", always_2d=True)
    except (library.SoundFileError, OSError, RuntimeError) as error:
        raise ConfigError(f"cannot read the recording {str(path)!r}: {one_line(str(error))}: fetch it again") from error
    return AudioRecording(np.asarray(values[:, 0] if values.shape[1] == 1 else values.mean(axis=1), np.float32), int(rate))
