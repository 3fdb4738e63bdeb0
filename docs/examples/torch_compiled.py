"""A PyTorch module through torch.compile, whose first call compiles: `edgemeter run torch_compiled.py:make`."""

import torch

from edgemeter.plugin import PythonModel


def make(threads: int = 1) -> PythonModel:
    """Return the model; `backend` says that it compiles, so that the record holds how long that took."""
    torch.set_num_threads(threads)
    net = torch.compile(torch.nn.Sequential(torch.nn.Conv2d(3, 16, 3, 2), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(1)).eval())
    call = torch.inference_mode()(lambda images: net(torch.from_numpy(images)))
    return PythonModel(call=call, inputs={"images": ("float32", (1, 3, 224, 224))}, backend="compile,cpu")
