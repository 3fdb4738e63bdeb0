"""A profile as a Chrome trace, which chrome://tracing and ui.perfetto.dev open.

Source: Trace Event Format, JSON Object Format: complete events (`X`) and metadata (`M`), times in us.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from edgemeter.agent.errors import ConfigError
from edgemeter.agent.profile.job import Recorded

_PROCESS = 1
_INFERENCES = 0


def write(path: Path, recorded: Recorded) -> None:
    """Write the trace to a file.

    Raises:
        ConfigError: it cannot be written.
    """
    try:
        path.write_bytes(msgspec.json.encode(document(recorded)))
    except OSError as error:
        message = f"cannot write the trace {str(path)!r}: {error.strerror}: name another file (--trace)"
        raise ConfigError(message) from error


def document(recorded: Recorded) -> dict[str, Any]:
    """Return the trace: inferences on one line, operators on a line for each thread, the first event at 0."""
    return {"traceEvents": [*_names(recorded), *_events(recorded)], "displayTimeUnit": "ms", "otherData": _about(recorded)}


def _about(recorded: Recorded) -> dict[str, str]:
    return {
        "model": recorded.model,
        "runtime": f"{recorded.package} {recorded.version}",
        "backend": recorded.backend,
        "note": "times under a profiler, which slows the model: no latencies",
    }


def _lines(recorded: Recorded) -> dict[int, int]:
    """Return the line of each thread, numbered from 1."""
    threads = sorted({event.thread for event in recorded.events if event.category == "operator"})
    return {thread: place for place, thread in enumerate(threads, _INFERENCES + 1)}


def _names(recorded: Recorded) -> Iterator[dict[str, Any]]:
    name = f"{recorded.model} on {recorded.package} {recorded.version}"
    yield {"name": "process_name", "ph": "M", "pid": _PROCESS, "tid": 0, "args": {"name": name}}
    lines = {_INFERENCES: "inferences"} | {line: f"operators, thread {line}" for line in _lines(recorded).values()}
    for line, text in lines.items():
        yield {"name": "thread_name", "ph": "M", "pid": _PROCESS, "tid": line, "args": {"name": text}}


def _events(recorded: Recorded) -> Iterator[dict[str, Any]]:
    lines = _lines(recorded)
    first_us = min((event.start_us for event in recorded.events), default=0.0)
    for event in sorted(recorded.events, key=lambda one: (one.start_us, -one.duration_us)):
        yield {
            "name": event.name,
            "cat": event.category,
            "ph": "X",
            "ts": event.start_us - first_us,
            "dur": event.duration_us,
            "pid": _PROCESS,
            "tid": _INFERENCES if event.category == "inference" else lines[event.thread],
            "args": {"type": event.type} | ({"start": "made up: the profiler gives durations only"} if event.laid_out else {}),
        }
