"""Facts from calls of a Python model: devices, precision, and outputs."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass

from edgemeter.agent.base.errors import MeasurementError
from edgemeter.agent.runtimes import Array, TensorInfo
from edgemeter.agent.runtimes.call_results import devices_of, leaves, precision_of

# Kinds of devices by the names in backends and libraries.
_DEVICES = {
    "cpu": "cpu",
    "gpu": "gpu",
    "cuda": "gpu",
    "rocm": "gpu",
    "mps": "mps",
    "xpu": "xpu",
    "tpu": "tpu",
}


@dataclass(frozen=True, slots=True)
class CallEvidence:
    """Facts from a call: the libraries of its results, its devices, its parameters' precision."""

    libraries: frozenset[str] = frozenset()
    devices: Sequence[str] = ()
    precision: str | None = None


def evidence_of(result: object, arguments: Sequence[object], function: object) -> CallEvidence:
    # Arrays of JAX belong to its package jaxlib.
    libraries = {
        type(leaf).__module__.partition(".")[0].removesuffix("lib") for leaf in leaves(result)
    }
    devices = devices_of(result, arguments, function)
    torch = sys.modules.get("torch")
    if devices in ([], ["cpu"]) and torch is not None and torch.cuda.is_initialized():
        # The model may copy its inputs and results itself.
        devices = [
            f"cuda:{number}"
            for number in range(torch.cuda.device_count())
            if torch.cuda.max_memory_allocated(number)
        ] or devices
    return CallEvidence(frozenset(libraries), devices, precision_of(result, function))


def contradicts(backend: str, devices: Sequence[str]) -> bool:
    """Return whether a backend names devices, but none of those of a call."""
    parts = [part.strip().lower().partition(":") for part in backend.split(",")]
    requested = {(_DEVICES[kind], number) for kind, _, number in parts if kind in _DEVICES}
    ran = [
        (_DEVICES.get(kind, kind), number)
        for kind, _, number in (device.partition(":") for device in devices)
    ]
    return bool(requested and ran) and not any(
        (kind, number) in requested or (kind, "") in requested for kind, number in ran
    )


def outputs_of(
    first: Sequence[Array], second: Sequence[Array], *, is_open_batch: bool
) -> tuple[TensorInfo, ...]:
    """Return the outputs by two calls: sizes that differ, and that of an open batch, are open."""
    if [array.dtype for array in first] != [array.dtype for array in second]:
        raise MeasurementError(
            f"two calls returned {len(first)} and {len(second)} arrays, or other types: return "
            "the same each time"
        )
    infos = []
    for index, (array, repeated) in enumerate(zip(first, second, strict=True)):
        if array.ndim != repeated.ndim:
            raise MeasurementError(
                f"output {index} had {array.ndim} axes, then {repeated.ndim}: return "
                "the same each time"
            )
        shape: list[int | None] = [
            size if size == other else None
            for size, other in zip(array.shape, repeated.shape, strict=True)
        ]
        shape[:1] = [None] if is_open_batch and shape[:1] == [1] else shape[:1]
        infos.append(TensorInfo(f"output_{index}", tuple(shape), array.dtype.name))
    return tuple(infos)
