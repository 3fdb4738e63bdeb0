"""ONNX Runtime's profiler (`SessionOptions.enable_profiling`): one event a node, in us, in a JSON file that it writes at the end.

The profiled session exists beside the plain one, with the same options. Tested with onnxruntime 1.31.1 on the CPU.
"""

import json
import tempfile
from bisect import bisect_right
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from edgemeter.agent import runtimes
from edgemeter.agent.base.errors import MeasurementError
from edgemeter.agent.contract.suite import Case
from edgemeter.agent.engine.loading import LoadedModel
from edgemeter.agent.profile.profiler import ProfileEvent, timed_calls
from edgemeter.agent.runtimes import Array
from edgemeter.agent.runtimes.onnx_runtime import OnnxRuntime

_KERNEL = "_kernel_time"
_WARM_UP_QUERIES = 3


class OnnxProfiler:
    """Runs a second session with profiling on."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="edgemeter-profile-")
        self._runtime = OnnxRuntime(profile_prefix=str(Path(self._folder.name) / "onnx"))
        self._warm = False

    def open(self, case: Case, model: LoadedModel) -> None:
        """Make the second session."""
        del model
        self._runtime.load(Path(case.model), runtimes.Options(threads=case.threads, backend=case.backend, extra=case.options))

    def record(self, inputs: Sequence[list[Array]]) -> list[int]:
        """Run the queries, the first time after a short warm-up, whose events are skipped later."""
        if not self._warm:
            self._warm = True
            for _ in range(_WARM_UP_QUERIES):
                self._runtime.bind(inputs[0])()
        return timed_calls(self._runtime.bind, inputs)

    def events(self) -> list[ProfileEvent]:
        """End profiling and read the file."""
        path = Path(self._runtime.end_profiling())
        try:
            return parse_profile(path.read_bytes(), skip=_WARM_UP_QUERIES)
        finally:
            self._runtime.close()
            self._folder.cleanup()


def parse_profile(text: bytes, skip: int) -> list[ProfileEvent]:
    """Return the events of a profile without those of its first `skip` runs.

    Raises:
        MeasurementError: it is not a profile of ONNX Runtime, or holds no further runs.
    """
    try:
        entries: list[dict[str, Any]] = [entry for entry in json.loads(text) if isinstance(entry, dict)]
        runs = sorted(float(entry["ts"]) for entry in entries if entry.get("cat") == "Session" and entry.get("name") == "model_run")
        found = [_event(entry) for entry in entries if _is_wanted(entry)]
    except (ValueError, KeyError, TypeError) as error:
        raise MeasurementError(
            f"ONNX Runtime wrote a profile that cannot be read ({type(error).__name__}: {error}): profile with another version"
        ) from error
    if len(runs) <= skip:
        raise MeasurementError(f"ONNX Runtime's profile holds {len(runs)} runs, but more than {skip} were made: profile fewer queries")
    return [event for event in found if bisect_right(runs, event.start_us) > skip]


def _is_wanted(entry: dict[str, Any]) -> bool:
    if entry.get("cat") == "Session":
        return entry.get("name") == "model_run"
    return entry.get("cat") == "Node" and str(entry.get("name", "")).endswith(_KERNEL)


def _event(entry: dict[str, Any]) -> ProfileEvent:
    is_run = entry["cat"] == "Session"
    name = "inference" if is_run else str(entry["name"]).removesuffix(_KERNEL)
    kind = "inference" if is_run else str(entry.get("args", {}).get("op_name", name))
    return ProfileEvent(
        name=name,
        type=kind,
        start_us=float(entry["ts"]),
        duration_us=float(entry["dur"]),
        category="inference" if is_run else "operator",
        thread=int(entry.get("tid", 0)),
    )
