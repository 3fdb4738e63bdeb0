"""PyTorch as its user calls it: an nn.Module, operator by operator.

Library: `pip install 'edgemeter[torch]'`.
Options: `module` (`package.net:Net` or `FILE.py:Net`: a class or function that returns the module); `weights` (a state_dict: .pt, read with
`weights_only=True`, or .safetensors); `input` (`1x3x224x224`; several with commas, each `NAME=SHAPE:DTYPE`, `?` an open size; with
`ids=1x8:int64<1000` random ids are below 1000, `mask` is 1); `dtype` (float32, the default, float64, float16, bfloat16: weights and floats
of the inputs, which are converted before they are timed).
Backend: `cpu` (the default), `cuda` or `cuda:N`, which is synchronised within each query. One operator runs at a time, on the case's
threads.
Example: `edgemeter run edgemeter.agent.factories.torch_eager:make --option module=net.py:Net --option weights=net.pt --option
input=1x3x224x224`.
Tested with torch 2.13.0 on the CPU, and by hand with 2.11.0 on an NVIDIA H200.
"""

from edgemeter.agent.factories.arguments import parse_inputs
from edgemeter.agent.factories.torch_module import make_module, open_device
from edgemeter.agent.runtimes.python_model import PythonModel


def make(
    module: str,
    input: str,  # noqa: A002
    weights: str | None = None,
    dtype: str = "float32",
    backend: str | None = None,
    threads: int = 1,
) -> PythonModel:
    """Return the module in evaluation and inference mode; raises ConfigError, UnavailableError."""
    inputs, device = parse_inputs(input), open_device(backend, dtype, threads)
    network, fields = make_module(device.torch, module, weights)
    network = device.ready(network)
    return device.model("eager", network, call=network, inputs=inputs, **fields)
