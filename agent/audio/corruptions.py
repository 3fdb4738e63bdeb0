"""Corruptions of recordings in five severities: white noise at a stated signal-to-noise ratio, reverberation at a stated ratio too.

White noise: normal, 20 to 0 dB below the recording's mean power (SNR). Source of the range: speech in noise is customarily tested at 20,
15, 10, 5 and 0 dB (ETSI's Aurora-2).
Reverberation: the recording convolved with a synthetic impulse response, as J. A. Moorer describes it (Computer Music Journal 3(2), 1979):
the direct sound, and white noise under an exponential that falls by 60 dB in 0.2 to 1.3 s; `direct` states the power of the direct sound
over that of the reflections in dB. The result has the recording's length and mean power, so that loudness plays no part.
"""

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from edgemeter.agent.audio.recordings import AudioRecording
from edgemeter.agent.base.corruption_draw import corruption_draw

Floats = NDArray[np.float64]
# RandomState's streams are frozen: the same noise with every numpy on every machine.
Draw = np.random.RandomState

WHITE_NOISE_SNR_DB = (20, 15, 10, 5, 0)
REVERBERATION_60_DB_S = (0.2, 0.4, 0.6, 0.9, 1.3)
REVERBERATION_DIRECT_DB = (10, 5, 0, -5, -10)


def corrupt_recording(recording: AudioRecording, name: str, severity: int, seed: int, identity: str) -> AudioRecording:
    """Return the recording corrupted in one of the table's ways, with a severity from 1 to 5: as long, at the same rate.

    By the run's `seed` and its `identity` (the hash of its file) every recording has noise of its own, the same on every machine.
    """
    draw = corruption_draw(name, severity, seed, identity)
    samples = recording.samples.astype(np.float64)
    corrupted = CORRUPTIONS[name](samples, recording.sample_rate_hz, severity - 1, draw)
    return AudioRecording(corrupted.astype(np.float32), recording.sample_rate_hz)


def _white_noise(samples: Floats, _rate: int, level: int, draw: Draw) -> Floats:
    noise = draw.normal(size=len(samples))
    noise_power = _power(samples) / 10 ** (WHITE_NOISE_SNR_DB[level] / 10)
    return np.asarray(samples + noise * np.sqrt(noise_power / _power(noise)))


def _reverberation(samples: Floats, rate: int, level: int, draw: Draw) -> Floats:
    decay_s = REVERBERATION_60_DB_S[level]
    # 60 dB are a factor of 1000 in amplitude.
    tail = draw.normal(size=int(decay_s * rate)) * 1000 ** (-np.arange(int(decay_s * rate)) / (decay_s * rate))
    tail[0] = 0
    response = tail / np.sqrt((tail**2).sum() * 10 ** (REVERBERATION_DIRECT_DB[level] / 10))
    response[0] = 1
    length = 1 << (len(samples) + len(response) - 1).bit_length()
    spectrum = np.fft.rfft(samples, length) * np.fft.rfft(response, length)
    heard = np.fft.irfft(spectrum, length)[: len(samples)]
    return np.asarray(heard * np.sqrt(_power(samples) / max(_power(heard), np.finfo(np.float64).tiny)))


def _power(samples: Floats) -> float:
    return float(np.mean(samples**2))


CORRUPTIONS: Mapping[str, Callable[[Floats, int, int, Draw], Floats]] = {"white_noise": _white_noise, "reverberation": _reverberation}
