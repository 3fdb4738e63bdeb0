"""ONNX Runtime's profiler (`SessionOptions.enable_profiling`): one event a node, in us, in a JSON file that it writes at the end.

The profiled session exists beside the plain one, with the same options. Tested with onnxruntime 1.31.1 on the CPU.
"""

import json
import tempfile
from bisect import bisect_right
from pathlib import Path
from typing import Any

from edgemeter.agent.base.errors import MeasurementError
from edgemeter.agent.profile.profiler import WARM_UP_QUERIES, ProfileEvent, SecondProgram, inference
from edgemeter.agent.runtimes.onnx_runtime import OnnxRuntime

_KERNEL = "_kernel_time"


class OnnxProfiler(SecondProgram):
    """Runs a second session with profiling on."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="edgemeter-profile-")
        self._session = OnnxRuntime(profile_prefix=str(Path(self._folder.name) / "onnx"))
        super().__init__(self._session)

    def events(self) -> list[ProfileEvent]:
        """End profiling and read the file."""
        path = Path(self._session.end_profiling())
        try:
            return parse_profile(path.read_bytes(), skip=WARM_UP_QUERIES)
        finally:
            self._session.close()
            self._folder.cleanup()


def parse_profile(text: bytes, skip: int) -> list[ProfileEvent]:
    """Return the events of a profile without those of its first `skip` runs.

    Raises:
        MeasurementError: it is not a profile of ONNX Runtime, or holds no further runs.
    """
    try:
        entries: list[dict[str, Any]] = [entry for entry in json.loads(text) if isinstance(entry, dict)]
        runs = sorted(float(entry["ts"]) for entry in entries if entry.get("cat") == "Session" and entry.get("name") == "model_run")
        events = [event for entry in entries if (event := _event(entry))]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise MeasurementError(
            f"ONNX Runtime wrote a profile that cannot be read ({type(error).__name__}: {error}): profile with another version"
        ) from error
    if len(runs) <= skip:
        raise MeasurementError(f"ONNX Runtime's profile holds {len(runs)} runs, but more than {skip} were made: profile fewer queries")
    return [event for event in events if bisect_right(runs, event.start_us) > skip]


def _event(entry: dict[str, Any]) -> ProfileEvent | None:
    is_run = (entry.get("cat"), entry.get("name")) == ("Session", "model_run")
    if not is_run and not (entry.get("cat") == "Node" and str(entry.get("name", "")).endswith(_KERNEL)):
        return None
    start_us, duration_us, thread = float(entry["ts"]), float(entry["dur"]), int(entry.get("tid", 0))
    if is_run:
        return inference(start_us, duration_us, thread)
    name = str(entry["name"]).removesuffix(_KERNEL)
    kind = str(entry.get("args", {}).get("op_name", name))
    return ProfileEvent(name=name, type=kind, start_us=start_us, duration_us=duration_us, thread=thread)
