"""Facts about what profilers write, read without their libraries."""

import json
import struct
from itertools import product

import pytest

from edgemeter.agent.base.errors import MeasurementError
from edgemeter.agent.profile import litert_profiler, onnx_profiler
from edgemeter.agent.profile.litert_profiler import RawEvent
from tests.fixtures.rows import table_row


def run_at(ts):
    return [
        {
            "cat": "Node",
            "ph": "X",
            "name": "conv_kernel_time",
            "ts": ts + 10,
            "dur": 50,
            "tid": 7,
            "args": {"op_name": "Conv"},
        },
        {
            "cat": "Node",
            "ph": "X",
            "name": "conv_fence_after",
            "ts": ts + 60,
            "dur": 1,
            "tid": 7,
            "args": {"op_name": "Conv"},
        },
        {
            "cat": "Node",
            "ph": "X",
            "name": "relu_kernel_time",
            "ts": ts + 70,
            "dur": 5,
            "tid": 7,
            "args": {"op_name": "Relu"},
        },
        {
            "cat": "Session",
            "ph": "X",
            "name": "SequentialExecutor::Execute",
            "ts": ts + 5,
            "dur": 80,
            "tid": 7,
            "args": {},
        },
        {
            "cat": "Session",
            "ph": "X",
            "name": "model_run",
            "ts": ts,
            "dur": 100,
            "tid": 7,
            "args": {},
        },
    ]


def test_onnx_events_are_those_of_the_recorded_runs():
    """Warm-up runs, fences and the executor around the nodes are left out."""
    start = [
        {
            "cat": "Session",
            "ph": "X",
            "name": "session_initialization",
            "ts": 1,
            "dur": 1000,
            "args": {},
        }
    ]
    text = json.dumps([*start, *run_at(2000), *run_at(3000), *run_at(4000), *run_at(5000)]).encode()
    parsed = onnx_profiler.parse_profile(text, skip=2)
    assert sorted(
        (event.start_us, event.duration_us, event.name, event.type) for event in parsed
    ) == [
        (4000, 100, "inference", "inference"), (4010, 50, "conv", "Conv"),
        (4070, 5, "relu", "Relu"),
        (5000, 100, "inference", "inference"), (5010, 50, "conv", "Conv"),
        (5070, 5, "relu", "Relu"),
    ]  # fmt: skip


def test_a_profile_that_holds_nothing_is_no_profile():
    """A garbled, empty or warm-up-only profile is refused."""
    for text, message in [
        (b"", "cannot be read"),
        (b'[{"cat": "Node", "name": "x_kernel_time"}]', "cannot be read"),
        (b"7", "cannot be read"),
        (b"[]", "holds 0 runs"),
        (json.dumps(run_at(1)).encode(), "holds 1 runs"),
    ]:
        with table_row(text), pytest.raises(MeasurementError, match=message):
            onnx_profiler.parse_profile(text, skip=1)


def test_litert_events_of_any_size_are_read():
    """Fields after the first four grew from version to version.

    The last four bytes may be left unwritten.
    """
    for written, event_bytes in product([0, 4], [88, 104, 120]):
        with table_row(event_bytes, written):
            events = [(8 * n, 1 << n % 5, 1000 * n, 10 + n) for n in range(1, 30)]
            raw = b""
            for event in events:
                raw += struct.pack("<Qi4xQQ", *event).ljust(event_bytes - 4, b"\0") + (
                    b"\0\0\0\0" if written else b"\xa5\xa5\xa5\xa5"
                )
            raw += b"\xa5" * (len(events) * 512 - len(raw))
            unpacked = litert_profiler.unpack_events(
                raw, len(events), lambda address: f"at {address}"
            )
            assert [
                (raw_event.tag, raw_event.kind, raw_event.start_us, raw_event.elapsed_us)
                for raw_event in unpacked
            ] == [
                (f"at {address}", kind, start, elapsed) for address, kind, start, elapsed in events
            ]


def test_litert_durations_without_a_start_follow_each_other():
    """XNNPACK's operators are laid out from the start of their inference.

    Events that are no operators are left out.
    """
    raw = [
        RawEvent("LiteRT::Run[buffer registration]", 1, 5000, 20),
        RawEvent("invoke", 16, 5100, 100),
        RawEvent("Invoke", 1, 5105, 90),
        RawEvent("Conv", 8, 0, 40),
        RawEvent("Conv", 8, 0, 30),
        RawEvent("SOFTMAX", 2, 5180, 5),
        RawEvent("Invoke", 32, 0, 1 << 32),
        RawEvent("invoke", 16, 5300, 100),
        RawEvent("Conv", 8, 0, 41),
    ]
    parsed = list(litert_profiler.operator_events(raw))
    assert [
        (event.name, event.type, event.start_us, event.duration_us, event.thread is None)
        for event in parsed
    ] == [
        ("inference", "inference", 5100, 100, True),
        ("Conv #1", "Conv", 5100, 40, True),
        ("Conv #2", "Conv", 5140, 30, True),
        ("SOFTMAX #1", "SOFTMAX", 5180, 5, False),
        ("inference", "inference", 5300, 100, True),
        ("Conv #1", "Conv", 5300, 41, True),
    ]


def test_litert_without_events_of_the_interpreter_has_those_of_its_own():
    """LiteRT writes such events for models with signatures; one of another kind is no run."""
    raw = [
        *(
            RawEvent("Invoke", 1, 5000, 90),
            RawEvent("Conv", 8, 0, 40),
            RawEvent("Invoke", 32, 0, 1 << 32),
        ),
        *(RawEvent("Invoke", 1, 5300, 80), RawEvent("Conv", 8, 0, 41)),
    ]
    assert [
        (event.name, event.start_us, event.duration_us)
        for event in litert_profiler.operator_events(raw)
    ] == [
        *(("inference", 5000, 90), ("Conv #1", 5000, 40)),
        *(("inference", 5300, 80), ("Conv #1", 5300, 41)),
    ]
