"""The real torchvision; no part of what must run in CI: PyPI's is built for CUDA and is of no use beside a PyTorch for the CPU."""

import contextlib
import importlib

import numpy as np
import pytest

from edgemeter.agent.runtimes import Options
from edgemeter.agent.runtimes.pytorch import PyTorch


@pytest.fixture
def libraries():
    """Return PyTorch and its torchvision, imported only by the test that runs, or skip."""
    try:
        # The small one first: where it is absent, nothing waits for PyTorch.
        torchvision = importlib.import_module("torchvision")
        return importlib.import_module("torch"), torchvision
    except (ImportError, RuntimeError, OSError) as error:
        pytest.skip(f"no torchvision that fits: {error}")


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:.*torch.jit:FutureWarning")
def test_the_real_torchvision_runs(tmp_path, libraries):
    """Its own suppression, traced into a TorchScript file: the best of boxes that overlap, [n, 5] with the score last."""
    torch, torchvision = libraries

    class Best(torch.nn.Module):
        def forward(self, x):
            return x[torchvision.ops.nms(x[:, :4], x[:, 4], 0.5)]

    torch.jit.trace(Best(), torch.zeros(2, 5)).save(str(tmp_path / "best.pt"))
    with contextlib.closing(PyTorch()) as runtime:
        runtime.load(tmp_path / "best.pt", Options())
        runtime.bind([np.float32([[0, 0, 1, 1, 0.25], [0, 0, 1, 1, 0.75]])])()
        assert runtime.outputs()[0].tolist() == [[0, 0, 1, 1, 0.75]]
