"""aiperf (ai-dynamo): `profile_export_aiperf.json`, latencies and rates that users of a language-model server saw.

Its inter-token latency is the mean of a request, (last - first token) / tokens after the first: our time per output token. Read of schema
1.4 (release 0.13), and of releases that name models as `endpoint.model_names` and users as `loadgen.concurrency`.
Format: https://github.com/ai-dynamo/aiperf
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.figures import count
from edgemeter.agent.base.foreign_text import parse_json
from edgemeter.collector.published import ReadTable, RowCollector

_STATISTICS = {"avg": "mean", "p50": "median", "p90": "p90", "p95": "p95", "p99": "p99", "min": "min", "max": "max"}
_FIGURES = {
    "time_to_first_token": "ttft",
    "inter_token_latency": "tpot",
    "request_latency": "latency",
    "output_token_throughput": "output-tokens",
    "output_token_throughput_per_user": "user-tokens",
    "request_throughput": "throughput",
}
# Levels of latency that are figures by themselves.
_OF_LATENCY = {"mean": "latency-mean", "p90": "latency-p90", "p99": "latency-p99"}
_UNITS = {"requests/sec": "requests/s", "tokens/sec": "tokens/s", "tokens/sec/user": "tokens/s", "sec": "s"}
# Read as facts of the run.
_FACTS = {"request_count", "error_request_count", "input_sequence_length", "output_sequence_length"}


class _Metric(msgspec.Struct):
    unit: str
    avg: float | None = None
    min: float | None = None
    max: float | None = None
    p50: float | None = None
    p90: float | None = None
    p95: float | None = None
    p99: float | None = None
    count: int | None = None


class _Named(msgspec.Struct):
    name: str


class _Models(msgspec.Struct):
    items: list[_Named] = []


class _Endpoint(msgspec.Struct):
    type: str | None = None
    streaming: bool | None = None
    model_names: list[str] = []


class _Phase(msgspec.Struct):
    kind: str = ""
    type: str = ""
    concurrency: Any = None
    rate: Any = None


class _LoadGenerator(msgspec.Struct):
    concurrency: Any = None
    request_rate: Any = None


class _Input(msgspec.Struct):
    models: _Models = msgspec.field(default_factory=_Models)
    endpoint: _Endpoint = msgspec.field(default_factory=_Endpoint)
    phases: list[_Phase] = []
    loadgen: _LoadGenerator = msgspec.field(default_factory=_LoadGenerator)

    @property
    def model(self) -> str | None:
        """The model, None where several shared the requests."""
        names = [entry.name for entry in self.models.items] or self.endpoint.model_names
        return names[0] if len(names) == 1 else None

    @property
    def load(self) -> tuple[int | None, str]:
        """The users of a closed loop, and the load in words."""
        timed = [phase for phase in self.phases if phase.kind in ("", "profiling")]
        kind = timed[0].type if len(timed) == 1 else "concurrency" if not self.phases else "several phases"
        users = timed[0].concurrency if len(timed) == 1 else self.loadgen.concurrency
        rate = timed[0].rate if len(timed) == 1 else self.loadgen.request_rate
        if rate is not None or kind != "concurrency":
            return None, f"open loop, {rate:g} requests/s" if isinstance(rate, int | float) else f"load by {kind.replace('_', ' ')}"
        is_number = isinstance(users, int) and not isinstance(users, bool)
        return (users, f"closed loop, {count(users, 'user')}") if is_number else (None, "load not stated")


class _Export(msgspec.Struct):
    input_config: _Input
    aiperf_version: str | None = None
    was_cancelled: bool = False
    is_complete: bool = True


class AiperfReader:
    """Reads `profile_export_aiperf.json`."""

    def recognises(self, name: str, text: str) -> bool:
        """Return whether it is a JSON object with `input_config` and one of the metrics."""
        return name.lower().endswith(".json") and '"input_config"' in text and any(f'"{metric}"' in text for metric in _FIGURES)

    def read(self, text: str, defaults: Mapping[str, Any]) -> ReadTable:
        """Return a row for each statistic of the metrics that are figures here; the names of the others are left out."""
        try:
            document = parse_json(text)
            export, metrics = msgspec.convert(document, _Export), _metrics(document)
        except (ConfigError, msgspec.ValidationError) as error:
            raise ConfigError(f"not an export of aiperf: {error}: give profile_export_aiperf.json as it was written") from error
        collector = RowCollector(defaults)
        facts = _facts(export, metrics)
        for name, figure in _FIGURES.items():
            if name in metrics:
                _add(collector, name, figure, metrics[name], facts)
        # Groups of metrics too, such as the telemetry of the server's GPUs.
        groups = {name for name, value in document.items() if isinstance(value, dict) and name != "input_config"}
        if unread := sorted((metrics.keys() | groups) - _FIGURES.keys() - _FACTS):
            collector.leave_out("other metrics", f"no figures of a run here: {', '.join(unread)}")
        return collector.table()


def _metrics(document: Mapping[str, Any]) -> dict[str, _Metric]:
    metrics = {}
    for name, value in document.items():
        try:
            metrics[name] = msgspec.convert(value, _Metric)
        except msgspec.ValidationError:
            # Not a metric; what should be one has to be.
            if name in _FIGURES and value is not None:
                raise
    return metrics


def _facts(export: _Export, metrics: Mapping[str, _Metric]) -> dict[str, Any]:
    users, load = export.input_config.load
    endpoint = export.input_config.endpoint
    version = f"aiperf {export.aiperf_version}" if export.aiperf_version else "aiperf"
    streaming = {True: "streamed", False: "not streamed", None: None}[endpoint.streaming]
    prompts, prompt_words = _length(metrics.get("input_sequence_length"), "prompt")
    outputs, output_words = _length(metrics.get("output_sequence_length"), "output")
    failed = metrics.get("error_request_count")
    failed_words = f"{failed.avg:g} requests failed, which are in no figure" if failed and failed.avg else None
    cut = "ended early" if export.was_cancelled or not export.is_complete else None
    words = (version, endpoint.type, streaming, load, prompt_words, output_words, failed_words, cut)
    requests = metrics.get("request_count")
    return {
        "model": export.input_config.model,
        "software": version,
        "concurrency": users,
        "prompt_tokens": prompts,
        "output_tokens": outputs,
        "conditions": ", ".join(filter(None, words)),
        "count": requests and _whole(requests.avg),
    }


def _whole(value: float | None) -> int | None:
    # Not of a number that no counter has, or of none (NaN).
    return int(value) if value and abs(value) < 1e15 else None


def _length(metric: _Metric | None, name: str) -> tuple[int | None, str | None]:
    """Return a length that all requests share, or the lengths in words."""
    if metric is None or metric.min is None or metric.max is None:
        return None, None
    if metric.min == metric.max:
        return _whole(metric.min), None
    return None, f"{metric.min:g} to {metric.max:g} {name} tokens"


def _add(collector: RowCollector, name: str, figure: str, metric: _Metric, facts: Mapping[str, Any]) -> None:
    values = {key: getattr(metric, key) for key in _STATISTICS if getattr(metric, key) is not None}
    if not values:
        collector.leave_out(name, "it has none of the statistics avg, p50, p90, p95, p99, min, max")
    for key, value in values.items():
        # A total has no spread: its `avg` is the figure.
        statistic = _STATISTICS[key] if len(values) > 1 else None
        collector.add(
            f"{name}, {key}",
            **dict(facts)
            | {
                "figure": _OF_LATENCY.get(statistic or "", figure) if figure == "latency" else figure,
                "value": value,
                "unit": _UNITS.get(metric.unit, metric.unit),
                "statistic": statistic,
                "count": metric.count if metric.count is not None else facts["count"],
            },
        )
