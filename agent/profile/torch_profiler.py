"""PyTorch's profiler (`torch.profiler`), on the CPU: every operator that the module called, nested, in us.

An operator has a namespace (`aten::add`); what has none (`forward`) only calls them.

It is switched on around each turn of queries, on the same module that runs without it in between. Tested with torch 2.13.0 on the CPU.
"""

import time
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from edgemeter.agent.base.errors import UnavailableError
from edgemeter.agent.contract.suite import Case
from edgemeter.agent.engine.loading import LoadedModel
from edgemeter.agent.profile.profiler import ProfileEvent, inference
from edgemeter.agent.runtimes import Array

_INFERENCE = "edgemeter inference"
# The profiler's clock may restart between turns, so their events are laid out one after the other.
_BETWEEN_TURNS_US = 100.0


class TorchProfiler:
    """Runs the module's call under `torch.profiler.profile`."""

    def __init__(self) -> None:
        self._model: LoadedModel | None = None
        self._events: list[ProfileEvent] = []

    def open(self, case: Case, model: LoadedModel) -> None:
        """Keep the module; on a CUDA device its operators would only queue work, whose duration they do not show."""
        if model.loaded.backend != "cpu":
            raise UnavailableError(
                f"PyTorch is profiled on the CPU only, not on {case.backend}: use `nsys profile` for what runs on a CUDA device"
            )
        self._model = model

    def record(self, inputs: Sequence[list[Array]]) -> list[int]:
        """Run the queries with the profiler on."""
        if self._model is None:
            return []
        profiling = import_module("torch.profiler")
        durations = []
        with profiling.profile(activities=[profiling.ProfilerActivity.CPU]) as profile:
            for arrays in inputs:
                call = self._model.runtime.bind(arrays)
                with profiling.record_function(_INFERENCE):
                    begin = time.monotonic_ns()
                    call()
                    durations.append(time.monotonic_ns() - begin)
        ends_us = max((event.start_us + event.duration_us + _BETWEEN_TURNS_US for event in self._events), default=0.0)
        self._events.extend(_events(profile.events(), ends_us))
        return durations

    def events(self) -> list[ProfileEvent]:
        """Return the events inside the inferences."""
        return self._events


def _events(entries: Sequence[Any], offset_us: float) -> list[ProfileEvent]:
    spans = [entry for entry in entries if entry.name == _INFERENCE]
    if not spans:
        return []
    first_us = min(float(entry.time_range.start) for entry in spans)
    events = []
    for entry in entries:
        start_us, duration_us = float(entry.time_range.start) - first_us + offset_us, float(entry.time_range.end - entry.time_range.start)
        if entry.name == _INFERENCE:
            events.append(inference(start_us, duration_us, int(entry.thread)))
        elif "::" in entry.name and _is_inside(entry):
            events.append(
                ProfileEvent(name=entry.name, type=entry.name, start_us=start_us, duration_us=duration_us, thread=int(entry.thread))
            )
    return events


def _is_inside(entry: Any) -> bool:
    """Return whether it ran inside an inference: copying inputs to the device is not the model's."""
    parent = entry.cpu_parent
    while parent is not None and parent.name != _INFERENCE:
        parent = parent.cpu_parent
    return parent is not None
