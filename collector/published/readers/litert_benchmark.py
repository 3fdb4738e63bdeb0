"""litert-benchmark: JSON of its option `--result_json`; the program comes with LiteRT's wheel.

It times `run_by_name` of a CompiledModel, on one random input, and rounds to 0.01 ms; its MB are 2^20 bytes. Not stated: device, version
of LiteRT, precision, batch, date. Tested with ai-edge-litert 2.1.
"""

from collections.abc import Mapping
from pathlib import PureWindowsPath
from typing import Any

import msgspec

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.foreign_text import parse_json
from edgemeter.collector.published import ReadTable, RowCollector


class _Latency(msgspec.Struct):
    avg_ms: float
    min_ms: float
    max_ms: float
    median_ms: float
    std_ms: float
    p95_ms: float
    num_runs: int
    init_ms: float
    warmup_first_ms: float
    num_warmup_runs: int


class _Result(msgspec.Struct):
    model: str
    model_size_mb: float
    accelerators: list[str]
    signature: str
    fully_accelerated: bool
    num_threads: int
    latency: _Latency


class LitertBenchmark:
    """Reads the result of one run."""

    def recognises(self, name: str, text: str) -> bool:  # noqa: ARG002 - the name says nothing
        """Return whether the text is such a result."""
        try:
            return '"accelerators"' in text and bool(_result(text))
        except ConfigError:
            return False

    def read(self, text: str, defaults: Mapping[str, Any]) -> ReadTable:
        """Return mean, median and p95 of the latency, the two times of the cold start, and the size of the file."""
        result = _result(text)
        latency, collector = result.latency, RowCollector(defaults)
        extent = "fully accelerated" if result.fully_accelerated else "not fully accelerated"
        facts: dict[str, Any] = {
            "model": PureWindowsPath(result.model).stem,  # Its separators are those of either system.
            "runtime": "litert",
            "backend": "+".join(result.accelerators).lower() or None,
            "threads": result.num_threads if "CPU" in result.accelerators else None,
            "conditions": f"litert-benchmark, signature {result.signature}, {extent}, {latency.num_warmup_runs} warm-up queries",
        }
        timed = {**facts, "unit": "ms", "count": latency.num_runs}
        spread = {
            "low": latency.min_ms or None,
            "high": latency.max_ms,
            "standard_deviation": latency.std_ms if latency.num_runs > 1 else None,
        }
        collector.add("avg_ms", figure="latency-mean", statistic="mean", value=latency.avg_ms, **spread, **timed)
        collector.add("median_ms", figure="latency", statistic="median", value=latency.median_ms, **timed)
        collector.add("p95_ms", figure="latency", statistic="p95", value=latency.p95_ms, **timed)
        collector.add("init_ms", figure="cold_start_load_ms", value=latency.init_ms, unit="ms", **facts)
        if latency.num_warmup_runs:
            collector.add("warmup_first_ms", figure="cold_start_first_ms", value=latency.warmup_first_ms, unit="ms", **facts)
        collector.add("model_size_mb", figure="size", value=result.model_size_mb, unit="MiB", **facts)
        collector.leave_out("p5_ms", "no figure is a p5")
        collector.leave_out("throughput_mb_s", "bytes of input a second are no figure")
        return collector.table()


def _result(text: str) -> _Result:
    try:
        return msgspec.convert(parse_json(text), _Result)
    except (ConfigError, msgspec.ValidationError) as error:
        raise ConfigError(f"this is no result of litert-benchmark: {error}; give the file that its option result_json names") from error
