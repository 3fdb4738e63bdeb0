"""The real torchvision; no part of what must run in CI: PyPI's is built for CUDA and is of no use beside a PyTorch for the CPU."""

import contextlib

import numpy as np
import pytest

from edgemeter.agent.runtimes import Options
from edgemeter.agent.runtimes.pytorch import PyTorch

torch = pytest.importorskip("torch")
try:
    import torchvision
except (ImportError, RuntimeError, OSError) as error:
    pytest.skip(f"no torchvision that fits: {error}", allow_module_level=True)


class Best(torch.nn.Module):
    """The best of boxes that overlap, [n, 5] with the score last."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the rows that suppression leaves."""
        return x[torchvision.ops.nms(x[:, :4], x[:, 4], 0.5)]


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:.*torch.jit:FutureWarning")
def test_the_real_torchvision_runs(tmp_path):
    """Its own suppression, traced into a TorchScript file."""
    torch.jit.trace(Best(), torch.zeros(2, 5)).save(str(tmp_path / "best.pt"))
    with contextlib.closing(PyTorch()) as runtime:
        runtime.load(tmp_path / "best.pt", Options())
        runtime.bind([np.float32([[0, 0, 1, 1, 0.25], [0, 0, 1, 1, 0.75]])])()
        assert runtime.outputs()[0].tolist() == [[0, 0, 1, 1, 0.75]]
