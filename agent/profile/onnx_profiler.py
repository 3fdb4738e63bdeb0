"""ONNX Runtime's profiler: one event per node, in us, in a JSON file written at the end.

`SessionOptions.enable_profiling` switches it on. The profiled session runs beside the plain one,
with the same options. Tested with onnxruntime 1.31.1 on the CPU.
"""

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from edgemeter.agent.base.errors import MeasurementError
from edgemeter.agent.contract.suite import Case
from edgemeter.agent.engine.loading import LoadedModel
from edgemeter.agent.profile.profiler import WARM_UP_QUERIES, ProfileEvent, inference, timed_calls
from edgemeter.agent.runtimes import Array, Options
from edgemeter.agent.runtimes.onnx_runtime import OnnxRuntime

_KERNEL = "_kernel_time"


class OnnxProfiler:
    """Runs a second session with profiling on; it records from the start."""

    def __init__(self, case: Case, model: LoadedModel, inputs: list[Array]) -> None:
        del model
        self._folder = tempfile.TemporaryDirectory(prefix="edgemeter-profile-")
        self._session = OnnxRuntime(profile_prefix=str(Path(self._folder.name) / "onnx"))
        self._session.load(
            Path(case.model),
            Options(threads=case.threads, backend=case.backend, extra=case.options),
        )
        timed_calls(self._session.bind, [inputs] * WARM_UP_QUERIES)

    def record(self, inputs: Sequence[list[Array]]) -> list[int]:
        return timed_calls(self._session.bind, inputs)

    def events(self) -> list[ProfileEvent]:
        """End profiling and read the file."""
        path = Path(self._session.session.end_profiling())
        try:
            return parse_profile(path.read_bytes(), skip=WARM_UP_QUERIES)
        finally:
            self._session.close()
            self._folder.cleanup()


def parse_profile(text: bytes, skip: int) -> list[ProfileEvent]:
    """Return the events of a profile after its first `skip` runs.

    Raises:
        MeasurementError: it is not a profile of ONNX Runtime, or has no further runs.
    """
    try:
        entries: list[dict[str, Any]] = [
            entry for entry in json.loads(text) if isinstance(entry, dict)
        ]
        runs = [
            inference(float(entry["ts"]), float(entry["dur"]))
            for entry in entries
            if entry.get("name") == "model_run"
        ]
        operators = [
            _operator(entry) for entry in entries if str(entry.get("name", "")).endswith(_KERNEL)
        ]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise MeasurementError(
            f"ONNX Runtime wrote a profile that cannot be read ({type(error).__name__}: "
            f"{error}): profile with another version"
        ) from error
    if len(runs) <= skip:
        raise MeasurementError(
            f"ONNX Runtime's profile holds {len(runs)} runs, but more than {skip} were made: "
            "profile fewer queries"
        )
    first_us = sorted(run.start_us for run in runs)[skip]
    return [event for event in [*runs, *operators] if event.start_us >= first_us]


def _operator(entry: dict[str, Any]) -> ProfileEvent:
    name, (start_us, duration_us) = (
        str(entry["name"]).removesuffix(_KERNEL),
        (float(entry["ts"]), float(entry["dur"])),
    )
    kind = str(entry.get("args", {}).get("op_name", name))
    return ProfileEvent(
        name=name,
        type=kind,
        start_us=start_us,
        duration_us=duration_us,
        thread=int(entry.get("tid", 0)),
    )
