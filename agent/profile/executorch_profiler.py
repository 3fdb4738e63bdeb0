"""ExecuTorch's event tracer (ETDump): one event a kernel, and one an operator inside XNNPACK, whose times are whole us.

The profiled program exists beside the plain one, of the same file. What a delegate call takes beyond its operators is a row of its own.
Source: devtools/etdump/etdump_schema_flatcc.fbs (ED00, behind its size in 4 bytes), times in ns. Tested with executorch 1.5.1, x86-64.
"""

import tempfile
from collections.abc import Iterator
from pathlib import Path

from edgemeter.agent.base.errors import MeasurementError
from edgemeter.agent.base.nanoseconds import NS_PER_US
from edgemeter.agent.profile.profiler import WARM_UP_QUERIES, ProfileEvent, SecondProgram, inference
from edgemeter.agent.runtimes.execu_torch import ExecuTorch
from edgemeter.agent.runtimes.tflite_file import FlatBufferTable, GarbledError, root_table

_SIZE_BYTES = 4
_INFERENCE, _DELEGATE, _KERNEL = "Method::execute", "DELEGATE_CALL", "native_call_"


class ExecuTorchProfiler(SecondProgram):
    """Runs a second program with its events recorded."""

    def __init__(self) -> None:
        self._program = ExecuTorch(records_events=True)
        super().__init__(self._program)

    def events(self) -> list[ProfileEvent]:
        """Write the events and read them."""
        with tempfile.TemporaryDirectory(prefix="edgemeter-profile-") as folder:
            path = Path(folder) / "events.etdp"
            self._program.write_events(path)
            self._program.close()
            return parse_events(path.read_bytes(), skip=WARM_UP_QUERIES)


def parse_events(content: bytes, skip: int) -> list[ProfileEvent]:
    """Return the events of a dump without those of its first `skip` inferences.

    Raises:
        MeasurementError: it is not a dump of ExecuTorch, or holds no further inferences.
    """
    try:
        runs = [list(_events(run)) for run in root_table(content[_SIZE_BYTES:]).tables(1)]
    except GarbledError as error:
        raise MeasurementError(f"ExecuTorch wrote events that cannot be read ({error}): measure with `edgemeter run` instead") from error
    everything = [event for run in runs for event in run]
    ends = sorted(event.start_us + event.duration_us for event in everything if event.category == "inference")
    if len(ends) <= skip:
        raise MeasurementError(f"ExecuTorch recorded {len(ends)} inferences, but more than {skip} were made: measure with `edgemeter run`")
    begin_us = ends[skip - 1] if skip else 0.0
    return [event for event in everything if event.start_us >= begin_us]


def _events(run: FlatBufferTable) -> Iterator[ProfileEvent]:
    for event in (event.table(0) for event in run.tables(3)):
        if event is None:
            continue
        name, inner, instruction = event.text(0), event.text(4), event.integer(2, default=-1)
        start_ns, end_ns = event.integer(6, "<Q"), event.integer(7, "<Q")
        if name == _INFERENCE:
            yield inference(start_ns / NS_PER_US, (end_ns - start_ns) / NS_PER_US)
            continue
        if inner:
            label, kind = inner, inner.rpartition(" #")[0] or inner
        elif name == _DELEGATE:
            label, kind = f"delegate call #{instruction}", "delegate call"
        elif name.startswith(_KERNEL):
            kind = name.removeprefix(_KERNEL).removesuffix(".out")
            label = f"{kind} #{instruction}"
        else:
            # A wrapper around a kernel, or the loading of the program.
            continue
        yield ProfileEvent(name=label, type=kind, start_us=start_ns / NS_PER_US, duration_us=(end_ns - start_ns) / NS_PER_US)
