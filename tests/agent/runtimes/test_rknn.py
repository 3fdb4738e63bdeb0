"""Facts about RKNN's runtime, with a stand-in for its library; under emulation the real one is imported (tests/arm64)."""

import numpy as np
import pytest

from edgemeter.agent.base.errors import ConfigError, MeasurementError, UnavailableError
from edgemeter.agent.runtimes import Options
from edgemeter.agent.runtimes.rknn import Rknn
from tests.fixtures import stand_ins
from tests.fixtures.rknn_stand_in import RKNNLite, written
from tests.fixtures.rows import table_row

PICTURE = {"images": (1, 3, 2, 4)}


@pytest.fixture
def runtime(tmp_path, monkeypatch):
    """Return a runtime on a board with an RK3588."""
    stand_ins.rknn(tmp_path, monkeypatch)
    runtime = Rknn()
    yield runtime
    runtime.close()


def test_pictures_go_in_as_height_width_channels_or_as_the_model_was(runtime, tmp_path):
    """The file states N, C, H, W; uint8 N, H, W, C is what cameras and the library's examples give."""
    model = written(tmp_path / "m.rknn", PICTURE, {"y": (1, 3, 2, 4)})
    pixels = np.arange(24, dtype=np.uint8).reshape(1, 2, 4, 3)
    for extra, shape, dtype, array in (
        ({}, (1, 2, 4, 3), "uint8", pixels),
        ({"data_format": "nchw"}, (1, 3, 2, 4), "uint8", pixels.transpose(0, 3, 1, 2)),
        ({"dtype": "float32"}, (1, 2, 4, 3), "float32", pixels.astype(np.float32)),
    ):
        with table_row(extra):
            loaded = runtime.load(model, Options(extra=extra))
            assert [(info.name, info.shape, info.dtype) for info in loaded.inputs] == [("images", shape, dtype)]
            assert [(info.name, info.shape, info.dtype) for info in loaded.outputs] == [("y", (1, 3, 2, 4), "float32")]
            assert loaded.precision == "unknown"  # Inputs are as the user chose them.
            runtime.bind([array])()
            np.testing.assert_array_equal(runtime.outputs()[0], 2.0 * pixels.transpose(0, 3, 1, 2) + 1)


def test_the_order_of_tensors_is_that_of_their_numbers(runtime, tmp_path):
    """Not that of the list."""
    model = written(tmp_path / "m.rknn", {"a": (1, 2), "b": (1, 3)}, {"y": (1, 2), "z": (1, 5)})
    loaded = runtime.load(model, Options(backend="core0_1"))
    assert [info.name for info in (*loaded.inputs, *loaded.outputs)] == ["a", "b", "y", "z"]
    assert (loaded.backend, loaded.version) == ("core0_1", "2.5.0")
    assert loaded.facts == {"sdk": "API: 2.5.0 (build) DRV: rknn_server: rknpu: 0.9.8", "platforms": "rk3588"}


def test_a_core_that_the_chip_lacks_is_refused(runtime, tmp_path, monkeypatch):
    """By the chip that the file is for, whose cores are known; of a chip with one, the library refuses to be asked for it."""
    for chip, core, words in (
        ("rk3576", "core2", "rk3576 has 2 NPU cores, not those of 'core2': choose auto"),
        ("rk3566", "core1", "rk3566 has 1 NPU core, not those of 'core1': choose auto"),
        ("rk3566", "core0", "cannot run .* no cores to choose"),
    ):
        with table_row(chip):
            monkeypatch.setattr(RKNNLite, "chip", chip)
            model = written(tmp_path / "m.rknn", {"x": (1, 4)}, {"y": (1, 4)}, target_platform=[chip])
            with pytest.raises(UnavailableError, match=words):
                runtime.load(model, Options(backend=core))
            assert runtime.load(model, Options()).backend == "auto"


def test_a_model_of_another_chip_and_a_machine_without_an_npu_are_refused(runtime, tmp_path, monkeypatch):
    """One line each, with the library's reason and what to do: a status does not tell the two apart."""
    model = written(tmp_path / "m.rknn", {"x": (1, 4)}, {"y": (1, 4)}, target_platform=["rk3562"])
    with pytest.raises(UnavailableError, match=r"cannot run .*another platform.*converted for this chip"):
        runtime.load(model, Options())
    monkeypatch.setattr(RKNNLite, "chip", None)
    with pytest.raises(UnavailableError, match=r"cannot run .*no board here.*librknnrt") as refusal:
        runtime.load(model, Options())
    assert "\n" not in str(refusal.value)


def test_a_query_that_fails_is_no_measurement(runtime, tmp_path):
    """The library gives None, which nothing else would notice."""
    runtime.load(written(tmp_path / "m.rknn", {"x": (1, 4)}, {"y": (1, 4)}, fails=True), Options())
    call = runtime.bind([np.zeros((1, 4), np.uint8)])
    with pytest.raises(MeasurementError, match="RKNN failed on a query"):
        call()
    with pytest.raises(MeasurementError, match="no output"):
        runtime.outputs()


def test_a_file_that_states_no_tensors_is_refused(runtime, tmp_path):
    """Garbled, of nothing, encrypted, or with another text at its end."""
    content_of_all = written(tmp_path / "whole.rknn", {"x": (1, 4)}, {"y": (1, 4)}).read_bytes()
    size_at = 64 + 2
    for content, words in (
        (content_of_all.replace(b"norm_tensor", b"form_tensor"), "does not state its tensors"),
        (content_of_all.replace(b'"left": "output"', b'"left": "inputs"'), "states no output"),
        (content_of_all.replace(b'"size"', b'"sise"'), "does not state its tensors"),
        (b"CYPTRKNN" + content_of_all[8:], "not encrypted"),
        (content_of_all[:size_at] + b"\xff" * 8 + content_of_all[size_at + 8 :], "truncated or garbled"),
        (content_of_all[:16] + b"\xff" * 8 + content_of_all[24:], "truncated or garbled"),
        (content_of_all[: size_at + 8] + b"[" * 9000, "truncated or garbled"),
    ):
        with table_row(words):
            path = tmp_path / "broken.rknn"
            path.write_bytes(content)
            with pytest.raises(ConfigError, match=words) as refusal:
                runtime.load(path, Options())
            assert str(path) in str(refusal.value)
