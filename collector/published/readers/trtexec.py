"""trtexec: the log of NVIDIA's benchmark program for TensorRT, of one run or several.

Its latency is of one query: copy in, compute, copy out; GPU compute time is less and no latency. A query is a batch: with an explicit
batch the throughput it prints counts batches, with an implicit one images. The options that it prints are those of a build: of an engine
that was loaded (`--loadEngine`) they state neither precision nor, but for `--shapes`, its batch. Not stated: the board (`Selected Device`
is the GPU's name), the power mode. Source: NVIDIA/TensorRT, samples/common/sampleReporting.cpp, v8 to v10.
"""

import re
from collections.abc import Mapping
from pathlib import PureWindowsPath
from typing import Any, get_args

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.foreign_text import whole_number
from edgemeter.collector.published import ReadTable, RowCollector
from edgemeter.collector.published.readers.file_facts import version_fact
from edgemeter.collector.published.row import KINDS, Statistic

_NUMBER = r"(\d+(?:\.\d+)?(?:e[+-]?\d+)?)"
_STAMP = re.compile(r".*?\[(\d\d)/(\d\d)/(\d{4})-[\d:]+\]")
_PREFIX = re.compile(r".*?\[[IVWE]\]\s+")
_RUNNING = re.compile(r"&&&& RUNNING TensorRT\.trtexec .*?# (?P<command>.*)")
_OPTION = re.compile(
    r"(Model|Precision|DLACore|Batch|Input inference shape|Streams|Inference Streams|Data transfers|CUDA Graph|Spin-wait|Selected Device|"
    r"TensorRT version) ?: ?(.*)"
)
_TRACE = re.compile(r"Timing trace has (\d+) queries over .*")
_THROUGHPUT = re.compile(rf"Throughput: {_NUMBER} qps")
_TIMES = re.compile(r"(Latency|End-to-End Host Latency|Enqueue Time|H2D Latency|GPU Compute Time|D2H Latency): (min = .*)")
_VALUE = re.compile(rf"\b(\w+)(?:\(([\d.]+)%\))? = {_NUMBER} ms")
_SWITCHES = (
    ("Data transfers", "Disabled", "without copies"),
    ("CUDA Graph", "Enabled", "CUDA graph"),
    ("Spin-wait", "Enabled", "spin-wait"),
)
_NO_LATENCY = {
    "GPU Compute Time": "without the copies to and from the GPU: no latency",
    "End-to-End Host Latency": "with the wait for the query before: no latency",
}


class Trtexec:
    """Reads `=== Performance summary ===` and the options before it."""

    def recognises(self, name: str, text: str) -> bool:  # noqa: ARG002 - the name says nothing
        """Return whether there is a summary of trtexec."""
        return "=== Performance summary ===" in text and re.search(_THROUGHPUT, text) is not None

    def read(self, text: str, defaults: Mapping[str, Any]) -> ReadTable:
        """Return throughput, and mean, median and percentiles of the latency, of each run."""
        collector, run = RowCollector(defaults), dict[str, str]()
        shapes: list[str] = []
        for number, line in enumerate(text.splitlines(), start=1):
            stamp, prefix = _STAMP.match(line), _PREFIX.match(line)
            content = line[prefix.end() if prefix else 0 :].strip()
            if running := _RUNNING.search(line):
                run, shapes = {"command": running["command"]}, []
            elif stamp:
                run["day"] = f"{stamp[3]}-{stamp[1]}-{stamp[2]}"
            if option := _OPTION.fullmatch(content):
                run[option[1]] = option[2].strip()
                shapes += [option[2].strip()] if option[1] == "Input inference shape" else []
            elif trace := _TRACE.fullmatch(content):
                run["queries"] = trace[1]
            elif throughput := _THROUGHPUT.fullmatch(content):
                _add_throughput(collector, f"line {number}", float(throughput[1]), _facts(run, shapes, defaults))
            elif times := _TIMES.fullmatch(content):
                _add_times(collector, f"line {number}, {times[1]}", times, _facts(run, shapes, defaults))
        if not collector.rows and not collector.left_out:
            raise ConfigError("this has no performance summary of trtexec: give its whole log")
        return collector.table()


def _facts(run: Mapping[str, str], shapes: list[str], defaults: Mapping[str, Any]) -> dict[str, Any]:
    command = run.get("command", "")
    files = re.search(r"--(?:onnx|loadEngine|uff|deploy)=(\S+)", command)
    model = run.get("Model") or (files[1] if files else "")
    is_loaded = "--loadEngine" in command or run.get("Model") == ""
    software = f"TensorRT {run['TensorRT version']}" if "TensorRT version" in run else None
    batch, is_implicit = _batch(run, shapes, is_loaded=is_loaded), not shapes
    conditions = [
        "trtexec",
        f"tested {run['day']}" if "day" in run else "",
        f"GPU {run['Selected Device']}" if run.get("Selected Device") else "",
        *(words for name, value, words in _SWITCHES if run.get(name) == value),
        "the engine was loaded, its precision is not in the log" if is_loaded else "",
        "a query is a batch of the model's size, which is not in the log" if batch is None else f"a query is a batch of {batch}",
    ]
    streams, queries = whole_number(run.get("Inference Streams", run.get("Streams"))), whole_number(run.get("queries"))
    # With an implicit batch the trace counts images.
    per_query = batch if batch and is_implicit else 1
    return {
        "model": PureWindowsPath(model).stem or None,
        "version": version_fact(defaults, software),
        "runtime": "tensorrt",
        "software": software,
        "backend": "dla" if run.get("DLACore") else "gpu",
        "precision": run["Precision"].lower() if run.get("Precision") and not is_loaded else None,
        "batch": batch,
        "concurrency": streams,
        "input_size": ", ".join(sorted(shapes)) or None,
        "count": None if queries is None else queries // per_query,
        "conditions": ", ".join(filter(None, conditions)),
    }


def _batch(run: Mapping[str, str], shapes: list[str], *, is_loaded: bool) -> int | None:
    """Return the first dimension that all inputs have, else the implicit batch; `model` as a shape states none."""
    if shapes:
        firsts = {match[1] for shape in shapes if (match := re.search(r"=(\d+)", shape))}
        return whole_number(firsts.pop()) if len(firsts) == 1 else None
    # Of a loaded engine trtexec prints `Batch: 1`, whatever the engine's is.
    return whole_number(run.get("Batch")) if not is_loaded or run.get("Batch") != "1" else None


def _add_throughput(collector: RowCollector, where: str, per_s: float, facts: dict[str, Any]) -> None:
    if facts["batch"] and facts["input_size"]:
        collector.add(where, figure="throughput", value=per_s * facts["batch"], unit="images/s", **facts)
    else:
        collector.add(where, figure="throughput", value=per_s, unit="qps", **facts)


def _add_times(collector: RowCollector, where: str, times: re.Match[str], facts: dict[str, Any]) -> None:
    if times[1] != "Latency":
        collector.leave_out(where, _NO_LATENCY.get(times[1], "a part of a query: no figure"))
        return
    values = {f"p{percent}" if percent else name: float(value) for name, percent, value in _VALUE.findall(times[2])}
    low, high = values.pop("min", None), values.pop("max", None)
    for name, value in values.items():
        figure = f"latency-{name}" if f"latency-{name}" in KINDS else "latency"
        spread = {"low": low, "high": high} if name == "mean" else {}
        if name in get_args(Statistic):
            collector.add(f"{where}, {name}", figure=figure, statistic=name, value=value, unit="ms", **spread, **facts)
        else:
            collector.leave_out(f"{where}, {name}", "no statistic of that name")
