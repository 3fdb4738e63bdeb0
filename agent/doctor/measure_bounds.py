"""Measures the bounds of this machine: how fast memory is read, and how fast its cores multiply in float32 and int8.

Run as a program it prints them as JSON, after some 3 s.
"""

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np

from edgemeter.agent import runtimes
from edgemeter.agent.base.errors import EdgemeterError, one_line
from edgemeter.agent.contract.record_conditions import Environment, MachineBounds
from edgemeter.agent.machine import fingerprint, roof
from edgemeter.agent.machine.load import read_memory
from edgemeter.agent.machine.machine import THIS_MACHINE
from edgemeter.agent.runtimes import Options

# Element types of ONNX tensors. Source: onnx.proto, TensorProto.DataType.
_UINT8, _INT8, _INT32 = 2, 3, 6
ONNX_IR, ONNX_OPSET = 8, 13


def measure(environment: Environment, available_mb: float | None) -> MachineBounds:
    """Return the bounds; each is measured twice, the second time after the others."""
    begin = time.monotonic()
    cores, size_bytes = environment.cores, roof.read_bytes(environment.cache_mb, available_mb)
    with tempfile.TemporaryDirectory(prefix="edgemeter-bounds-") as folder:
        measures: dict[str, Callable[[], float]] = {"float32_gop_per_s": roof.float32_gop_per_s}
        reasons: list[str] = []
        if size_bytes is None:
            reasons.append(f"memory: an array of {roof.CACHES} times the caches does not fit in a quarter of what is free")
        else:
            measures["memory_gbyte_per_s"] = lambda: roof.read_gbyte_per_s(cores, size_bytes)
        try:
            measures["int8_gop_per_s"] = int8_product(Path(folder), cores)
        except EdgemeterError as error:
            reasons.append(f"int8: {one_line(error)}")
        speeds = [{name: measure_one() for name, measure_one in measures.items()} for _ in range(2)]
    bounds: dict[str, float] = {}
    for name in measures:
        both = [speed[name] for speed in speeds]
        if doubts := roof.unsteady(both, name):
            reasons += doubts
        else:
            bounds[name] = max(both)
    return MachineBounds(**bounds, reasons=tuple(reasons), measured_at_ns=time.time_ns(), took_s=time.monotonic() - begin)


def int8_product(folder: Path, threads: int) -> Callable[[], float]:
    """Return what measures the rate of products of int8 matrices by ONNX Runtime; raises EdgemeterError without it."""
    size = roof.PRODUCT_SIZE
    model = folder / "product.onnx"
    model.write_bytes(product_model(size))
    runtime = runtimes.create("onnx")
    runtime.load(model, Options(threads=threads, backend="cpu"))
    draw = np.random.default_rng(0)
    multiply = runtime.bind([draw.integers(0, 255, (size, size), np.uint8), draw.integers(-127, 127, (size, size), np.int8)])
    return lambda: roof.product_gop_per_s(multiply, 2 * size**3)


def product_model(size: int) -> bytes:
    """Return an ONNX model of one product of square matrices, uint8 by int8 with int32 sums. Source: onnx.proto, numbers of the fields."""
    node = b"".join(_bytes(field, text) for field, text in ((1, b"a"), (1, b"b"), (2, b"y"), (4, b"MatMulInteger")))
    inputs = b"".join(_bytes(11, _tensor(name, kind, size)) for name, kind in ((b"a", _UINT8), (b"b", _INT8)))
    graph = _bytes(1, node) + _bytes(2, b"product") + inputs + _bytes(12, _tensor(b"y", _INT32, size))
    return _number(1, ONNX_IR) + _bytes(8, _number(2, ONNX_OPSET)) + _bytes(7, graph)


def _tensor(name: bytes, kind: int, size: int) -> bytes:
    shape = _bytes(1, _number(1, size)) * 2
    return _bytes(1, name) + _bytes(2, _bytes(1, _number(1, kind) + _bytes(2, shape)))


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _bytes(field: int, content: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*encoded, value))


if __name__ == "__main__":
    sys.stdout.buffer.write(msgspec.json.encode(measure(fingerprint.read(), read_memory(THIS_MACHINE).available_mb)))
