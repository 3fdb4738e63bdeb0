"""Memory and streams of a CUDA device by its runtime library, without a package of its own: what TensorRT needs beside itself.

Library: libcudart, which comes with JetPack and the CUDA toolkit, and with the wheels that `pip install 'edgemeter[tensorrt]'` brings.
Source: https://docs.nvidia.com/cuda/cuda-runtime-api (cudaMalloc, cudaMemcpy, cudaStreamCreate, cudaStreamSynchronize).
"""

import ctypes
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from edgemeter.agent.errors import ConfigError, MeasurementError, UnavailableError
from edgemeter.agent.runtimes import Array

NAMES = ("libcudart.so", "libcudart.so.13", "libcudart.so.12", "libcudart.so.11.0")
_TO_DEVICE, _TO_HOST = 1, 2
_SUCCESS = 0


class CudaMemory:
    """One stream of the current device, and what was allocated on it; all of it is given back by `close`."""

    def __init__(self, names: tuple[str, ...] = NAMES) -> None:
        """Load the library and make a stream; raises UnavailableError where there is no library or no device."""
        self._library = _open(names)
        self._library.cudaGetErrorString.restype = ctypes.c_char_p
        self._pointers: list[int] = []
        self._stream = ctypes.c_void_p()
        count = ctypes.c_int()
        status = self._library.cudaGetDeviceCount(ctypes.byref(count))
        if status != _SUCCESS or count.value < 1:
            message = (
                f"CUDA sees no device: {self._words(status) if status else 'there is none'}; check the driver and who may use the device"
            )
            raise UnavailableError(message)
        status = self._library.cudaStreamCreate(ctypes.byref(self._stream))
        if status != _SUCCESS:
            message = f"CUDA makes no stream: {self._words(status)}; end what else uses the device"
            raise UnavailableError(message)

    @property
    def stream(self) -> int:
        """Return the stream's handle."""
        return self._stream.value or 0

    def allocate(self, size_bytes: int) -> int:
        """Return the address of new device memory.

        Raises:
            ConfigError: there is not that much.
        """
        pointer = ctypes.c_void_p()
        status = self._library.cudaMalloc(ctypes.byref(pointer), ctypes.c_size_t(max(1, size_bytes)))
        if status != _SUCCESS or not pointer.value:
            message = (
                f"CUDA has no {size_bytes} bytes to give: {self._words(status)}; take a smaller batch, or end what else uses the device"
            )
            raise ConfigError(message)
        self._pointers.append(pointer.value)
        return pointer.value

    def free(self, pointer: int) -> None:
        """Give memory back."""
        self._pointers.remove(pointer)
        self._library.cudaFree(ctypes.c_void_p(pointer))

    def copy_in(self, pointer: int, array: Array) -> None:
        """Copy an array in C order to device memory."""
        self._copy(pointer, array.ctypes.data, array.nbytes, _TO_DEVICE)

    def copy_out(self, pointer: int, shape: tuple[int, ...], dtype: str) -> Array:
        """Return device memory as an array."""
        array = np.empty(shape, dtype)
        self._copy(array.ctypes.data, pointer, array.nbytes, _TO_HOST)
        return array

    def waiter(self) -> Callable[[], int]:
        """Return the bare call that waits for the stream; it returns 0 when all went well."""
        call, stream = self._library.cudaStreamSynchronize, self._stream
        return lambda: call(stream)

    def close(self) -> None:
        """Give everything back; may be called twice."""
        for pointer in [*self._pointers]:
            self.free(pointer)
        if self._stream.value:
            self._library.cudaStreamDestroy(self._stream)
            self._stream = ctypes.c_void_p()

    def _copy(self, target: int, source: int, size_bytes: int, kind: int) -> None:
        status = self._library.cudaMemcpy(ctypes.c_void_p(target), ctypes.c_void_p(source), ctypes.c_size_t(size_bytes), kind)
        if status != _SUCCESS:
            message = f"CUDA copied no {size_bytes} bytes: {self._words(status)}; the query before it may have failed"
            raise MeasurementError(message)

    def _words(self, status: int) -> str:
        words = self._library.cudaGetErrorString(status)
        return words.decode(errors="replace") if words else f"error {status}"


def _open(names: tuple[str, ...]) -> ctypes.CDLL:
    for name in [*names, *_in_wheels(names)]:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    message = f"no CUDA runtime library is here (tried {', '.join(names)}): install CUDA, or on a Jetson JetPack's packages"
    raise UnavailableError(message)


def _in_wheels(names: tuple[str, ...]) -> Iterator[str]:
    """Yield where NVIDIA's wheels put the library: below `nvidia/` among the installed packages."""
    spec = find_spec("nvidia")
    for place in (spec.submodule_search_locations or []) if spec else []:
        for name in names:
            yield from map(str, sorted(Path(place).glob(f"*/lib/{name}")))
