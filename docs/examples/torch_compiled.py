"""Measure a PyTorch module, compiled or not.

edgemeter run torch_compiled.py:make
edgemeter run torch_compiled.py:make --option compiled=no
"""

import torch

from edgemeter.plugin import PythonModel


def make(compiled: str = "yes", threads: int = 1) -> PythonModel:
    """Return the model.

    Options arrive as text; with the backend `compile`, the record has the time of compilation.
    """
    torch.set_num_threads(threads)
    net = torch.nn.Sequential(
        torch.nn.Conv2d(3, 16, 3, 2), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(1)
    ).eval()
    if compiled == "yes":
        net = torch.compile(net)
    call = torch.inference_mode()(lambda images: net(torch.from_numpy(images)))
    backend = "compile,cpu" if compiled == "yes" else "callable,cpu"
    return PythonModel(call=call, inputs={"images": ("float32", (1, 3, 224, 224))}, backend=backend)
