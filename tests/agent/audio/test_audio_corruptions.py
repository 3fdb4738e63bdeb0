"""Facts about corrupted recordings: the stated ratios, the same on every machine, and as long as they were."""

import numpy as np
import pytest

from edgemeter.agent.audio.corruptions import (
    CORRUPTIONS,
    REVERBERATION_60_DB_S,
    REVERBERATION_DIRECT_DB,
    WHITE_NOISE_SNR_DB,
    corrupt_recording,
)
from edgemeter.agent.audio.recordings import AudioRecording
from edgemeter.agent.contract import case_settings
from tests.fixtures.audio_factory import RATE, tone
from tests.fixtures.rows import table_row

SOUND = AudioRecording(tone(440, seconds=2.0), RATE)


def power(samples):
    """Return the mean power."""
    return float(np.mean(np.asarray(samples, np.float64) ** 2))


def test_the_names_of_the_suite_are_those_of_the_table():
    """A suite lists the corruptions of recordings in the order of the table that computes them."""
    assert tuple(CORRUPTIONS) == case_settings.CORRUPTIONS["audio"]


def test_white_noise_has_its_ratio_exactly():
    """To the digit of float32: signal over what was added."""
    for severity in range(1, 6):
        corrupted = corrupt_recording(SOUND, "white_noise", severity, 0, "a")
        ratio = 10 * np.log10(power(SOUND.samples) / power(corrupted.samples.astype(np.float64) - SOUND.samples))
        assert ratio == pytest.approx(WHITE_NOISE_SNR_DB[severity - 1], abs=1e-4), f"{severity!r}"


def test_reverberation_has_its_ratio_and_its_length():
    """Of a click: the first sample over all that follow; after the stated time less than a thousandth of the tail is left."""
    for severity in range(1, 6):
        with table_row(severity):
            click = np.zeros(2 * RATE, np.float32)
            click[0] = 1
            samples = corrupt_recording(AudioRecording(click, RATE), "reverberation", severity, 0, "a").samples.astype(np.float64)
            ratio = 10 * np.log10(samples[0] ** 2 / (samples[1:] ** 2).sum())
            assert ratio == pytest.approx(REVERBERATION_DIRECT_DB[severity - 1], abs=1e-3)
            tenth = round(REVERBERATION_60_DB_S[severity - 1] * RATE / 10)
            levels = [10 * np.log10(power(samples[1 + k * tenth : 1 + (k + 1) * tenth])) for k in (0, 9)]
            assert levels[0] - levels[1] == pytest.approx(54, abs=2.0)
            assert np.abs(samples[10 * tenth + 12 :]).max() < 1e-6


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_a_corruption_is_the_same_again_and_another_for_another_recording(name):
    """By seed, severity and identity; length, rate and silence stay."""
    corrupted = corrupt_recording(SOUND, name, 3, 0, "a")
    assert (len(corrupted.samples), corrupted.sample_rate_hz, corrupted.samples.dtype) == (2 * RATE, RATE, np.float32)
    assert np.array_equal(corrupted.samples, corrupt_recording(SOUND, name, 3, 0, "a").samples)
    variants = [corrupt_recording(SOUND, name, *how).samples for how in ((3, 1, "a"), (3, 0, "b"), (4, 0, "a"))]
    assert not any(np.array_equal(corrupted.samples, other) for other in variants)
    silence = AudioRecording(np.zeros(100, np.float32), RATE)
    assert not corrupt_recording(silence, name, 5, 0, "a").samples.any()
