"""PyTorch programs that the converters cannot write as they are.

They take sizes out of tensors, square, and have weights in another layout.
"""

from importlib import import_module

import numpy as np
import pytest

from edgemeter.agent import runtimes
from edgemeter.models.convert.formats import MakerInputs

pytestmark = [pytest.mark.convert, pytest.mark.nightly]

SHAPE = (1, 3, 16, 16)


def traced(path):
    """Write a TorchScript file that enlarges by a tensor's size and squares; return its path.

    Its weights have the channels last.
    """
    torch = import_module("torch")
    functional = torch.nn.functional

    class Enlarging(torch.nn.Module):
        """A layer, enlarged to twice its size and squared."""

        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Conv2d(3, 4, 3, stride=2, padding=1)
            self.last = torch.nn.Conv2d(4, 2, 3, padding=1)

        def forward(self, image):
            layer = self.layer(image)
            large = functional.interpolate(layer, size=(layer.size(2) * 2, layer.size(3) * 2))
            return (self.last(large).sigmoid() * 2) ** 2 + 0.5

    torch.manual_seed(0)
    model = Enlarging().eval().to(memory_format=torch.channels_last)
    torch.jit.save(torch.jit.trace(model, torch.zeros(SHAPE)), str(path))
    return model


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("maker", "runtime", "ending"),
    [("make_onnx", "onnx", "onnx"), ("make_litert", "litert", "tflite")],
)
def test_a_program_of_sizes_and_squares_is_converted(tmp_path, maker, runtime, ending):
    """The converted program of sizes and squares computes the values of PyTorch."""
    torch = import_module("torch")
    program = import_module("edgemeter.models.convert.torch_program")
    model, target = traced(tmp_path / "m.torchscript"), tmp_path / f"m.{ending}"
    getattr(program, maker)(tmp_path / "m.torchscript", target, MakerInputs(shape=lambda: SHAPE))
    image = np.random.default_rng(0).random(SHAPE, dtype=np.float32)
    with torch.no_grad():
        expected = model(torch.from_numpy(image)).numpy()
    opened = runtimes.create(runtime)
    try:
        opened.load(target, runtimes.Options())
        opened.bind(
            [np.ascontiguousarray(image.transpose(0, 2, 3, 1)) if runtime == "litert" else image]
        )()
        np.testing.assert_allclose(opened.outputs()[0], expected, atol=1e-4)
    finally:
        opened.close()
