"""The ncnn runtime gets shapes from wherever they are stated, and computes as asked.

Outputs are in the model's order.
"""

import importlib
import shutil

import numpy as np
import pytest

from edgemeter.agent.base.errors import ConfigError, UnavailableError
from edgemeter.agent.runtimes import Options
from edgemeter.agent.runtimes.tencent_ncnn import Ncnn
from tests.fixtures.rows import table_row

pytestmark = pytest.mark.needs(module="ncnn")
RUNTIME = Ncnn


def test_outputs_come_in_the_order_of_their_numbers(runtime, models, x):
    """The output out1 is computed first."""
    runtime.load(models / "ncnn_open.param", Options())
    runtime.bind([x])()
    np.testing.assert_array_equal(
        np.concatenate(runtime.outputs()), [[-1, -3, -5, -7], [1, 3, 5, 7]]
    )


def test_channels_rows_and_columns_keep_their_places(runtime, models):
    """Each channel has its own factor; ncnn pads channels in memory, which must not show."""
    loaded = runtime.load(models / "ncnn_channels.param", Options())
    assert loaded.inputs[0].shape == (1, 2, 3, 4)
    image = np.arange(24, dtype=np.float32).reshape(1, 2, 3, 4)
    runtime.bind([image])()
    expected = np.stack([2 * image[:, 0] + 1, 3 * image[:, 1] + 5], axis=1)
    np.testing.assert_array_equal(runtime.outputs()[0], expected)


def test_a_model_without_a_shape_takes_any_array(runtime, models, x):
    """Models from pnnx have no shape, and `input_shape` sets it."""
    loaded = runtime.load(models / "ncnn_open.param", Options())
    assert (loaded.inputs, loaded.outputs) == ((), ())
    loaded = runtime.load(models / "ncnn_open.param", Options(extra={"input_shape": "1x4"}))
    assert loaded.inputs[0].shape == (1, 4)
    with pytest.raises(ConfigError, match="in0"):
        runtime.bind([x[:, :3]])
    for shape in ["4", "1x", "2x4", "1x0x4", "1x3x4x5x6", "[1, 4]"]:
        with table_row(shape), pytest.raises(ConfigError, match="give 1xCxHxW"):
            runtime.load(models / "ncnn_open.param", Options(extra={"input_shape": shape}))


def test_the_metadata_beside_it_holds_the_shape(runtime, models, tmp_path):
    """Ultralytics exports a folder with such metadata."""
    for suffix in ("param", "bin"):
        shutil.copy(models / f"ncnn_open.{suffix}", tmp_path / f"model.ncnn.{suffix}")
    (tmp_path / "metadata.yaml").write_text(
        "task: detect\nimgsz:\n- 480\n- 640\nnames:\n  0: cat\n"
    )
    loaded = runtime.load(tmp_path / "model.ncnn.param", Options())
    assert loaded.inputs[0].shape == (1, 3, 480, 640)
    assert loaded.metadata["names"] == "{0: 'cat'}"


def test_it_computes_in_the_precision_that_is_asked_for(runtime, models):
    """The precision is fp32 unless configured otherwise, and `auto` leaves it to ncnn.

    ncnn takes what is fastest. The number of threads is the one asked for.
    """
    for precision, halves, backend in [
        (None, [], "cpu"),
        ("fp32", [], "cpu"),
        ("bf16", ["use_bf16_packed", "use_bf16_storage"], "cpu,bf16"),
    ]:
        loaded = runtime.load(
            models / "ncnn.param",
            Options(threads=2, extra={"precision": precision} if precision else {}),
        )
        options = runtime._net.opt
        assert [
            name
            for name in dir(options)
            if name.startswith(("use_fp16", "use_bf16")) and getattr(options, name)
        ] == halves
        assert (loaded.backend, options.num_threads) == (backend, 2)
    loaded = runtime.load(models / "ncnn.param", Options(extra={"precision": "auto"}))
    defaults = importlib.import_module("ncnn").Net().opt
    assert all(
        getattr(runtime._net.opt, name) == getattr(defaults, name)
        for name in dir(defaults)
        if name.startswith("use_")
    )
    assert loaded.backend == "cpu,auto"


def test_half_precision_where_the_processor_has_none_is_unavailable(runtime, models, monkeypatch):
    """Without the check ncnn would go on in fp32 without saying so."""
    monkeypatch.setattr(importlib.import_module("ncnn"), "cpu_support_arm_asimdhp", lambda: 0)
    with pytest.raises(UnavailableError, match="choose fp32 or bf16"):
        runtime.load(models / "ncnn.param", Options(extra={"precision": "fp16"}))


def test_a_vulkan_device_that_is_not_here_is_unavailable(runtime, models, capfd):
    """The library's own complaints do not reach the terminal."""
    with pytest.raises(UnavailableError, match="'vulkan:7' is none of them"):
        runtime.load(models / "ncnn.param", Options(backend="vulkan:7"))
    assert capfd.readouterr().err == ""


def test_missing_or_short_weights_are_reported(runtime, models, tmp_path, capfd):
    """The weights are in a second file, and ncnn's output becomes the reason."""
    shutil.copy(models / "ncnn.param", tmp_path / "m.param")
    for size, words in (
        (None, "the weights of .* are not there"),
        (31, "read weight_data failed"),
        (0, "read weight_data failed"),
    ):
        if size is not None:
            (tmp_path / "m.bin").write_bytes((models / "ncnn.bin").read_bytes()[:size])
        with table_row(size), pytest.raises(ConfigError, match=words) as refusal:
            runtime.load(tmp_path / "m.param", Options())
        assert "\n" not in str(refusal.value)
    assert capfd.readouterr().err == ""


def test_only_one_item_at_a_time_is_taken(runtime, models, x):
    """The runtime has no batches."""
    runtime.load(models / "ncnn_open.param", Options())
    with pytest.raises(ConfigError, match=r"float32 \[1, ...\]"):
        runtime.bind([np.repeat(x, 2, axis=0)])
