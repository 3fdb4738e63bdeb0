"""JAX: a function through `jax.jit`, or a saved export (StableHLO).

Library: `pip install jax` (the processor), `pip install 'jax[cuda12]'` (NVIDIA).
Options: `function` (`package.net:apply` or `FILE.py:apply`), `input` (as of `torch_eager`) and `weights` (a dictionary of arrays by name,
.npz or .safetensors, the function's first argument); or `file`, the bytes of `jax.export.export(...).serialize()`, which declares its
inputs; a pickle is not opened. Weights are arguments, not constants of the compiled program.
Backend: `cpu` or `gpu`, default JAX's own choice. Results are waited for (`block_until_ready`).
Threads: JAX documents no setting for them. Each pool of XLA has as many as the variable NPROC says, which is set to the case's threads:
with 1 all work was in one thread. Where JAX was in use before, it is too late.
Facts: `compilations` (each new shape or dtype is one), `compiled_ns`.
Example: `edgemeter run edgemeter.agent.factories.jax_jit:make --option function=net.py:apply --option weights=net.npz --option
input=1x224x224x3`.
Tested with jax 0.10.2 on the processor, and by hand with 0.11.2 on an NVIDIA H200.
"""

import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from edgemeter.agent.base.errors import ConfigError, UnavailableError
from edgemeter.agent.factories.arguments import existing, import_framework, mapped, parse_inputs
from edgemeter.agent.factories.compilations import Compilations
from edgemeter.agent.runtimes import TensorInfo
from edgemeter.agent.runtimes.python_model import PythonModel
from edgemeter.agent.sandbox.user_code import import_attribute

INSTALL = "pip install jax"


def make(
    function: str | None = None,
    input: str | None = None,  # noqa: A002
    weights: str | None = None,
    file: str | None = None,
    backend: str | None = None,
    threads: int = 1,
) -> PythonModel:
    """Return the function, to be compiled by its first call; raises ConfigError, UnavailableError."""
    jax = import_framework("jax", INSTALL)
    os.environ["NPROC"] = str(threads)
    device = _device(jax, backend)
    put = partial(jax.device_put, device=device)
    compiled = Compilations()
    files: tuple[Path, ...] = ()
    outputs: tuple[TensorInfo, ...] = ()
    if file is not None:
        if function is not None or input is not None or weights is not None:
            raise ConfigError(f"file={file!r} has its own function, inputs and weights: leave function, input and weights out")
        files = (existing("file", file),)
        called, inputs, outputs = _exported(jax, files[0])
        arguments: tuple[Any, ...] = ()
    elif function is None or input is None:
        raise ConfigError("jax_jit needs function=FILE.py:NAME with input=SHAPE, or file=EXPORT: give one of them")
    else:
        called, inputs = import_attribute(function), parse_inputs(input)
        files = () if weights is None else (existing("weights", weights),)
        arguments = tuple(jax.tree.map(put, _weights(path)) for path in files)
    jitted = jax.jit(compiled.counted(called))
    return PythonModel(
        call=partial(jitted, *arguments) if arguments else jitted,
        inputs=inputs,
        outputs=outputs,
        place=put,
        wait=jax.block_until_ready,
        backend=f"jit,{device.platform}",
        packages=("jax", "jaxlib"),
        weights=files,
        metadata={} if files else {"name": str(function).rpartition(":")[2]},
        facts=compiled.facts,
    )


def _device(jax: Any, backend: str | None) -> Any:
    if backend not in {None, "cpu", "gpu"}:
        raise ConfigError(f"jax_jit has no backend {backend!r}: choose cpu or gpu")
    try:
        return jax.devices(backend)[0]
    except RuntimeError as error:
        raise UnavailableError(f"jax {jax.__version__} sees no {backend}: choose cpu, or install its build for the GPU") from error


def _weights(path: Path) -> Mapping[str, Any]:
    if path.suffix == ".safetensors":
        read: Callable[[], Any] = lambda: import_framework("safetensors.numpy", "pip install safetensors").load_file(path)  # noqa: E731
    elif path.suffix == ".npz":
        read = lambda: dict(np.load(path, allow_pickle=False))  # noqa: E731
    else:
        raise ConfigError(
            f"weights={str(path)!r} are neither .npz nor .safetensors, and a pickle is not opened: save them with numpy.savez"
        )
    weights: Mapping[str, Any] = mapped(f"reading weights={str(path)!r}", read, "save arrays by name, without objects")
    return weights


def _exported(jax: Any, path: Path) -> tuple[Callable[..., Any], tuple[TensorInfo, ...], tuple[TensorInfo, ...]]:
    export = import_framework("jax.export", INSTALL)
    read = lambda: export.deserialize(bytearray(path.read_bytes()))  # noqa: E731
    program = mapped(f"reading file={str(path)!r}", read, "write it with jax.export.export(jax.jit(function))(...).serialize()")
    shapes, keywords = jax.tree.unflatten(program.in_tree, program.in_avals)
    if keywords or not all(hasattr(value, "shape") for value in shapes):
        raise ConfigError(f"file={str(path)!r} takes more than arrays: export a function of arrays only, its weights bound")
    return program.call, _infos("input", program.in_avals), _infos("output", program.out_avals)


def _infos(kind: str, avals: Any) -> tuple[TensorInfo, ...]:
    sizes = [tuple(size if isinstance(size, int) else None for size in aval.shape) for aval in avals]
    names = [kind] if len(avals) == 1 else [f"{kind}_{index}" for index in range(len(avals))]
    return tuple(TensorInfo(name, shape, aval.dtype.name) for name, shape, aval in zip(names, sizes, avals, strict=True))
