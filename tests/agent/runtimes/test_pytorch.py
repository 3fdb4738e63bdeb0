"""PyTorch runs both formats in inference mode, and no code of a stranger.

Nested outputs are flattened, and inference mode is left again.
"""

import importlib.util
import io
import sys

import numpy as np
import pytest

from edgemeter.agent.base.errors import ConfigError, UnavailableError
from edgemeter.agent.contract import model_file
from edgemeter.agent.runtimes import Options
from edgemeter.agent.runtimes.pytorch import PyTorch
from tests.agent.runtimes.conftest import named
from tests.fixtures.archives import changed
from tests.fixtures.rows import table_row

pytestmark = pytest.mark.torch
RUNTIME = PyTorch


@pytest.fixture
def torch():
    return importlib.import_module("torch")


def test_an_exported_program_holds_its_tensors_and_texts(runtime, models, x):
    """The graph's signature gives names, shapes and dtypes, and the archive gives labels.

    PyTorch 2.5 to 2.7 wrote another kind of archive.
    """
    loaded = runtime.load(models / "pytorch.pt2", named(models / "pytorch.pt2"))
    assert [(info.name, info.shape, info.dtype) for info in loaded.inputs] == [
        ("x", (1, 4), "float32")
    ]
    assert [(info.shape, info.dtype) for info in loaded.outputs] == [((1, 4), "float32")]
    assert loaded.metadata == {"labels.txt": "cat\ndog\n"}
    assert (loaded.package, loaded.backend) == ("torch", "cpu")
    for model, metadata in (
        ("pytorch.pt2", {"labels.txt": "cat\ndog\n"}),
        ("pytorch_old.pt2", {"note.txt": "old"}),
    ):
        assert runtime.load(models / model, named(models / model)).metadata == metadata
        runtime.bind([x])()
        np.testing.assert_array_equal(runtime.outputs()[0], [[1, 3, 5, 7]])


def test_torchscript_with_a_config_declares_its_input(runtime, models, x):
    """Ultralytics writes the shape into config.txt, against which the input is checked."""
    loaded = runtime.load(
        models / "pytorch_config.torchscript", named(models / "pytorch_config.torchscript")
    )
    assert [(info.shape, info.dtype) for info in loaded.inputs] == [((1, 4), "float32")]
    assert loaded.outputs == ()
    runtime.bind([x])()
    np.testing.assert_array_equal(runtime.outputs()[0], [[1, 3, 5, 7]])
    with pytest.raises(ConfigError, match=r"takes float32 \[1, 4\]"):
        runtime.bind([x[:, :2]])


def test_torchscript_without_one_takes_what_is_bound(runtime, models, x):
    """TorchScript itself declares no shapes; nested outputs are flattened in order."""
    loaded = runtime.load(models / "pytorch_nested.pt", named(models / "pytorch_nested.pt"))
    assert (loaded.inputs, loaded.outputs) == ((), ())
    runtime.bind([np.repeat(x, 2, axis=0)])()
    y = np.array([[1, 3, 5, 7]] * 2)
    for got, expected in zip(runtime.outputs(), (y, y, -y), strict=True):
        np.testing.assert_array_equal(got, expected)


def test_dictionaries_and_other_dtypes_come_flat(runtime, models, x):
    """NumPy has no bfloat16, so it becomes float32; uint8 stays."""
    loaded = runtime.load(models / "pytorch_nested.pt2", named(models / "pytorch_nested.pt2"))
    assert [info.dtype for info in loaded.outputs] == ["float32", "bfloat16", "uint8"]
    runtime.bind([x])()
    outputs = runtime.outputs()
    assert [array.dtype.name for array in outputs] == ["float32", "float32", "uint8"]
    for array in outputs:
        np.testing.assert_array_equal(array, [[1, 3, 5, 7]])


def test_the_call_runs_in_inference_mode_and_close_leaves_it(runtime, models, x, torch):
    """No gradient graph is kept while timing, and the mode is left afterwards."""
    runtime.load(models / "pytorch.pt2", named(models / "pytorch.pt2"))
    runtime.bind([x])()
    assert runtime._last.is_inference()
    runtime.close()
    assert not torch.is_inference_mode_enabled()


def test_threads_and_device_are_those_that_were_asked_for(runtime, models, torch):
    """Both thread pools are set, and CUDA is never replaced by the CPU."""
    for threads in (2, 1):
        runtime.load(models / "pytorch.pt2", named(models / "pytorch.pt2", threads=threads))
        assert torch.get_num_threads() == threads
    assert torch.get_num_interop_threads() == 1
    absent = f"cuda:{torch.cuda.device_count()}"
    with pytest.raises(UnavailableError, match=absent):
        runtime.load(models / "pytorch.pt2", named(models / "pytorch.pt2", backend=absent))


def test_a_pickle_is_refused_with_the_way_out(runtime, torch, tmp_path):
    """A module saved with torch.save is code, so the message says how to export it."""
    for is_zip in (True, False):
        torch.save(
            torch.nn.Linear(2, 2), tmp_path / "model.pt", _use_new_zipfile_serialization=is_zip
        )
        with pytest.raises(ConfigError, match=r"is a pickle.*torch\.export\.save"):
            runtime.load(tmp_path / "model.pt", Options())


class _Bomb:
    """An object that raises when it is unpickled by anything that runs code."""

    def __reduce__(self):
        return exec, ("raise SystemExit('unpickled')",)


def test_a_pickle_inside_a_program_holds_tensors_only(runtime, models, torch, tmp_path):
    """Example inputs are unpickled with restrictions only.

    torch.export.load would unpickle them without restriction after a first, restricted try.
    """
    bomb = io.BytesIO()
    torch.save(((_Bomb(),), {}), bomb)
    path = changed(
        models / "pytorch_old.pt2",
        tmp_path / "a.pt2",
        lambda member, content: bomb.getvalue() if "e_inputs" in member else content,
    )
    with pytest.raises(ConfigError, match="cannot load"):
        runtime.load(path, named(path))


def test_a_file_that_holds_code_is_opened_in_the_sandbox_or_by_its_hash(
    runtime, models, monkeypatch
):
    """Both formats are opened only in a sandbox or with a matching hash.

    A process that was started where there is no sandbox is in none.
    """
    for name in ("pytorch.pt2", "pytorch_nested.pt"):
        sha256 = model_file.sha256(models / name)
        for mark in ("", "no"):
            monkeypatch.setenv("IN_EDGEMETER_SANDBOX", mark)
            with (
                table_row(name),
                pytest.raises(
                    ConfigError, match=f"contains code, and no sandbox .*--sha256 {sha256}"
                ),
            ):
                runtime.load(models / name, Options())
        monkeypatch.setenv("IN_EDGEMETER_SANDBOX", "yes")
        assert runtime.load(models / name, Options()).backend == "cpu"
        with pytest.raises(ConfigError, match=f"has sha256 {sha256}, not 0000"):
            runtime.load(models / name, Options(sha256="0" * 64))


def test_a_torchvision_that_does_not_fit_is_named(runtime, models, monkeypatch, tmp_path):
    """PyPI's build for CUDA beside a PyTorch for the CPU raises a RuntimeError on import."""
    (tmp_path / "torchvision.py").write_text(
        "raise RuntimeError('operator torchvision::nms does not exist')"
    )
    monkeypatch.delitem(sys.modules, "torchvision", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    path = changed(
        models / "pytorch_nested.pt",
        tmp_path / "best.pt",
        lambda name, content: (
            content.replace(b"torch.neg(y)", b"ops.torchvision.nms(y, y, 0.5)")
            if name.endswith(".py")
            else content
        ),
    )
    with pytest.raises(
        UnavailableError, match=r"torchvision is here but .*nms does not exist.*from the same index"
    ):
        runtime.load(path, named(path))
