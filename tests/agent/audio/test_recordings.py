"""Facts about reading recordings: every width of PCM, float, FLAC; what is broken ends in one line."""

from itertools import product

import numpy as np
import pytest

from edgemeter.agent.audio.recordings import read_recording
from edgemeter.agent.base.errors import ConfigError, UnavailableError
from tests.fixtures.audio_factory import RATE, pcm_wav, tone, write_recording
from tests.fixtures.rows import table_row


def stored(bits):
    """Return full scale down, a quarter up, and nothing, as PCM of so many bits stores them."""
    if bits == 8:
        return np.array([0, 160, 128], np.uint8)
    full = 1 << (bits - 1)
    return np.array([-full, full // 4, 0], f"<i{2 if bits == 16 else 4}")


def test_pcm_of_every_width_is_full_scale_at_one(tmp_path):
    """-1, 0.25 and 0 exactly; a chunk of odd length before the samples is passed over."""
    for bits, extensible in product([8, 16, 24, 32], [False, True]):
        path = tmp_path / "a.wav"
        path.write_bytes(pcm_wav(stored(bits), bits, extensible=extensible))
        recording = read_recording(path)
        assert (recording.samples.dtype, recording.samples.tolist(), recording.sample_rate_hz) == (np.float32, [-1.0, 0.25, 0.0], RATE), (
            f"{bits!r}, {extensible!r}"
        )


def test_float_is_taken_as_it_is_and_channels_are_averaged(tmp_path):
    """Of 32 and 64 bits; two channels, -1 and 0.5, make -0.25."""
    for bits in (32, 64):
        (tmp_path / "f.wav").write_bytes(pcm_wav(np.array([-1, 0.5, 0, 0.25], f"<f{bits // 8}"), bits, channels=2, kind=3))
        assert read_recording(tmp_path / "f.wav").samples.tolist() == [-0.25, 0.125]
    samples = tone(440)
    assert np.array_equal(read_recording(write_recording(tmp_path / "own.wav", samples)).samples, samples)


def test_a_wav_that_came_through_a_pipe_is_read_to_its_end(tmp_path):
    """Its writer (FFmpeg, SoX, GStreamer) could not return to the header: the sizes are the largest, or none."""
    content = pcm_wav(stored(16), 16)
    for riff, size in [(0xFFFFFFFF, 0xFFFFFFFF), (0x7FFFF024, 0x7FFFF000), (0, 0), (36, 0), (0xFFFFFFFF, 0)]:
        (tmp_path / "p.wav").write_bytes(
            content[:4] + riff.to_bytes(4, "little") + content[8:-10] + size.to_bytes(4, "little") + content[-6:]
        )
        assert read_recording(tmp_path / "p.wav").samples.tolist() == [-1.0, 0.25, 0.0], f"{riff:#x}, {size:#x}"
    # One that is empty, and says so: what follows are no samples.
    empty = pcm_wav(np.array([], "<i2"), 16)[8:] + b"LIST\x02\x00\x00\x00ab"
    (tmp_path / "e.wav").write_bytes(b"RIFF" + len(empty).to_bytes(4, "little") + empty)
    with pytest.raises(ConfigError, match="holds no samples: record it again"):
        read_recording(tmp_path / "e.wav")


def test_flac_holds_what_wav_holds(tmp_path):
    """16 bits, written and read by libsndfile."""
    library = pytest.importorskip("soundfile", reason="needs the extra `audio`")
    samples = (tone(440) * 32767).astype(np.int16)
    library.write(str(tmp_path / "a.flac"), samples, RATE)
    recording = read_recording(tmp_path / "a.flac")
    assert recording.sample_rate_hz == RATE
    assert np.array_equal(recording.samples, samples.astype(np.float32) / 32768)
    (tmp_path / "b.flac").write_bytes((tmp_path / "a.flac").read_bytes()[:40])
    with pytest.raises(ConfigError, match=r"cannot read the recording .*b\.flac"):
        read_recording(tmp_path / "b.flac")


def test_without_the_library_flac_names_the_extra(tmp_path, monkeypatch):
    """FLAC is read by a library that may be absent: the error gives the pip command."""
    monkeypatch.setitem(__import__("sys").modules, "soundfile", None)
    (tmp_path / "a.flac").write_bytes(b"fLaC")
    with pytest.raises(UnavailableError, match=r"pip install 'edgemeter\[audio\]'"):
        read_recording(tmp_path / "a.flac")


def test_a_broken_recording_ends_in_one_line(tmp_path):
    """Which names it and what is wrong with it."""
    for content, words in [
        (b"", "not a WAV file"),
        (b"\xff\xfe\x00garbage\n", "not a WAV file"),
        (pcm_wav(stored(16), 16)[:40], "no samples"),
        (pcm_wav(stored(16), 16)[:-2], "ends after 4 of 6 bytes"),
        (pcm_wav(stored(16), 16, kind=17), "format 17, 16 bits"),
        (pcm_wav(np.array([], "<i2"), 16), "holds no samples"),
        (pcm_wav(np.array([np.nan], "<f4"), 32, kind=3), "not finite numbers"),
    ]:
        (tmp_path / "bad.wav").write_bytes(content)
        with table_row(words), pytest.raises(ConfigError, match=words) as refusal:
            read_recording(tmp_path / "bad.wav")
        assert "bad.wav" in str(refusal.value), f"{words!r}"
        assert "\n" not in str(refusal.value), f"{words!r}"
