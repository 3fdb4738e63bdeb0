r"""Replay: plays recorded latencies, for demonstrations and tests. It runs no model.

Protocol: the model is a JSON file, usually named `NAME.replay.json` (sample:
tests/fixtures/runtimes/replay.replay.json):

    {"format": "edgemeter-replay", "schema": 1,
     "latencies_ms": [8.1, 8.4, 8.2],                of the calls, in turn
     "seed": 7,                                      optional: each round in another order
     "load_ms": 120.0, "first_ms": 14.0,             optional: load; first call
     "inputs": [{"name": "images", "shape": [1, 64, 64, 3], "dtype": "uint8",
                 "scale": 0.0078125, "zero_point": 128}],
     "outputs": [{"name": "scores", "shape": [1, 3], "dtype": "float32",
                  "values": [0.1, 0.7, 0.2]}],
     "metadata": {"labels.txt": "cat\ndog\nowl"}}    optional

A null size in an input's shape is open. `values` are all elements in C order; without them an
output is zeros. A call sleeps until 0.5 ms before its end and spins from there; with the setting
`wait = "sleep"` it never spins. It needs no library.
"""

import random
import time
from collections.abc import Callable, Iterator, Sequence
from math import prod
from pathlib import Path
from typing import Annotated, Literal, TypeVar

import msgspec

from edgemeter.agent.base.errors import ConfigError, MeasurementError, one_line
from edgemeter.agent.base.foreign_text import decode_json
from edgemeter.agent.base.nanoseconds import NS_PER_MS
from edgemeter.agent.contract import model_file
from edgemeter.agent.runtimes import Array, Loaded, Options, Runtime, TensorInfo
from edgemeter.agent.runtimes.adapter import check_inputs, check_options

_SPIN_NS = 500_000

Milliseconds = Annotated[float, msgspec.Meta(ge=0, le=3_600_000)]
Size = Annotated[int, msgspec.Meta(ge=0)]
Recording = TypeVar("Recording")
DType = Literal[
    "float16",
    "float32",
    "float64",
    "int8",
    "uint8",
    "int16",
    "uint16",
    "int32",
    "uint32",
    "int64",
    "uint64",
    "bool",
]


class ReplayInput(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One input as the recorded model declared it."""

    name: str
    shape: tuple[Size | None, ...]
    dtype: DType
    scale: float | None = None
    zero_point: int | None = None


class ReplayOutput(ReplayInput, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One output and, where they were recorded, its values in C order."""

    shape: tuple[Size, ...]
    values: tuple[float, ...] | None = None


class ReplayModel(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The recorded latencies and the model that they belong to."""

    format: Literal["edgemeter-replay"]
    schema: Annotated[int, msgspec.Meta(ge=1, le=1)]
    latencies_ms: Annotated[tuple[Milliseconds, ...], msgspec.Meta(min_length=1)]
    seed: int | None = None
    load_ms: Milliseconds = 0.0
    first_ms: Milliseconds | None = None
    inputs: tuple[ReplayInput, ...]
    outputs: tuple[ReplayOutput, ...] = ()
    metadata: dict[str, str] = {}


class ReplayRuntime(Runtime):
    """Plays the latencies and outputs of a recorded model."""

    def __init__(self) -> None:
        self._latencies_ns: Iterator[int] = iter(())
        self._inputs: tuple[TensorInfo, ...] = ()
        self._outputs: tuple[Array, ...] = ()
        self._spin_ns = _SPIN_NS
        self._has_run = False

    def load(self, model: Path, options: Options) -> Loaded:
        """Read the recording and wait for its load time; see `Runtime.load`."""
        # A session reads this file too, and needs no parser of mails.
        from importlib.metadata import version  # noqa: PLC0415

        check_options("replay", options, backends=("replay",), extra=("wait",))
        started_ns = time.monotonic_ns()
        self._spin_ns = spinning_ns(options.extra.get("wait", "spin"))
        recorded = read_recording(model, ReplayModel, "replay model", __name__)
        self._latencies_ns = _latencies_ns(recorded)
        self._inputs = tuple(_info(entry) for entry in recorded.inputs)
        self._outputs = tuple(_values(entry, model) for entry in recorded.outputs)
        wait_until(started_ns + round(recorded.load_ms * NS_PER_MS), self._spin_ns)
        return Loaded(
            package="edgemeter",
            version=version("edgemeter"),
            backend="replay",
            inputs=self._inputs,
            outputs=tuple(_info(entry) for entry in recorded.outputs),
            metadata=recorded.metadata,
            import_ns=0,
            load_ns=time.monotonic_ns() - started_ns,
        )

    def bind(self, inputs: Sequence[Array]) -> Callable[[], object]:
        """Check the inputs; return a call that lasts the next recorded latency."""
        check_inputs(inputs, self._inputs)
        latencies_ns, spin_ns = self._latencies_ns, self._spin_ns
        self._has_run = False

        def call() -> None:
            started_ns = time.monotonic_ns()
            self._has_run = True
            wait_until(started_ns + next(latencies_ns), spin_ns)

        return call

    def outputs(self) -> list[Array]:
        if not self._has_run:
            raise MeasurementError("the replay has no output: run a query first")
        return [array.copy() for array in self._outputs]

    def close(self) -> None:
        self._latencies_ns = iter(())
        self._inputs = self._outputs = ()
        self._has_run = False


def read_recording(model: Path, kind: type[Recording], subject: str, module: str) -> Recording:
    """Return the recording in `model`.

    Raises:
        ConfigError: it cannot be read, or is not a recording (the wrong key is named).
    """
    model_file.head(model)
    try:
        return decode_json(model.read_bytes(), kind)
    except OSError as error:
        raise ConfigError(f"cannot read the replay {str(model)!r}: {error.strerror}") from error
    except msgspec.MsgspecError as error:
        raise ConfigError(
            f"{str(model)!r} is not a {subject}: {one_line(error)}; see `{module}` for its keys"
        ) from error


def _latencies_ns(recorded: ReplayModel) -> Iterator[int]:
    """Yield the latency of every call to come, without end."""
    if recorded.first_ms is not None:
        yield round(recorded.first_ms * NS_PER_MS)
    latencies_ns = [round(latency_ms * NS_PER_MS) for latency_ms in recorded.latencies_ms]
    # The order has to be repeatable, and is no secret.
    shuffle = None if recorded.seed is None else random.Random(recorded.seed)  # noqa: S311
    while True:
        yield from (
            latencies_ns if shuffle is None else shuffle.sample(latencies_ns, len(latencies_ns))
        )


def spinning_ns(wait: str) -> int:
    """Return the time before a deadline in which the setting `wait` (spin or sleep) spins.

    Raises:
        ConfigError: the setting is neither.
    """
    if wait not in {"spin", "sleep"}:
        raise ConfigError(f"runtime 'replay' cannot wait by {wait!r}: choose spin or sleep")
    return _SPIN_NS if wait == "spin" else 0


def wait_until(deadline_ns: int, spin_ns: int) -> None:
    """Wait for the deadline on the monotonic clock; without spinning, late by the timer's slack."""
    rest_ns = deadline_ns - time.monotonic_ns()
    if rest_ns > spin_ns:
        time.sleep((rest_ns - spin_ns) / 1e9)
    while time.monotonic_ns() < deadline_ns:
        pass


def _info(entry: ReplayInput) -> TensorInfo:
    return TensorInfo(entry.name, entry.shape, entry.dtype, entry.scale, entry.zero_point)


def _values(entry: ReplayOutput, model: Path) -> Array:
    import numpy as np  # noqa: PLC0415 - a session reads this file too, and needs no NumPy

    if entry.values is None:
        return np.zeros(entry.shape, entry.dtype)
    if len(entry.values) != prod(entry.shape):
        raise ConfigError(
            f"{str(model)!r}: output {entry.name!r} has {len(entry.values)} values, its shape "
            f"{list(entry.shape)} takes {prod(entry.shape)}"
        )
    values = np.array(entry.values, dtype=np.float64)
    if np.dtype(entry.dtype).kind != "f":
        low, high = (
            (0, 1)
            if entry.dtype == "bool"
            else (np.iinfo(entry.dtype).min, np.iinfo(entry.dtype).max)
        )
        if np.any((values < low) | (values > high) | (values != np.floor(values))):
            raise ConfigError(
                f"{str(model)!r}: output {entry.name!r} has a value that {entry.dtype} cannot "
                f"hold: give whole numbers {low} to {high}"
            )
    return values.astype(entry.dtype).reshape(entry.shape)
