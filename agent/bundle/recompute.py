"""Computes every statistic of a record again from its raw samples."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgemeter.agent import records, samples
from edgemeter.agent.bundle.compare import Difference, Finding, Left, compare
from edgemeter.agent.energy import per_inference, power_series
from edgemeter.agent.engine import job, statistics, verdict, windows
from edgemeter.agent.errors import ConfigError

NO_SAMPLES = "its raw samples are not in the record"
# Of what was looked at once there is nothing to compute it again from.
ONCE = (
    ("cold_start", "each of its times was taken once"),
    ("warm_up", "its queries are not kept"),
    ("memory", "the kernel's own figures, read once"),
    ("conditions", "sums of looks at the machine that are not kept"),
)


@dataclass(frozen=True, slots=True)
class Facts:
    """A record and its raw samples by name, whole numbers and reals as they were measured."""

    record: records.RunRecord
    raw: Mapping[str, NDArray[Any]]


def recompute(record: records.RunRecord) -> Iterator[Finding]:
    """Yield what came of every field that can be computed again, and what cannot.

    Raises:
        ConfigError: raw samples are damaged.
    """
    facts = Facts(record, {series.name: samples.unpack(series) for series in record.samples})
    for part in PARTS:
        yield from part(facts)
    for field, why in ONCE:
        yield Left(field, why)


def _latency(facts: Facts) -> Iterator[Finding]:
    latency_ns = facts.raw.get("latency")
    if latency_ns is None or latency_ns.size == 0:
        yield Left("latency", NO_SAMPLES)
        return
    yield from compare("latency", facts.record.latency, statistics.summarise(latency_ns))
    yield from compare("throughput_per_s", facts.record.throughput_per_s, latency_ns.size / (float(latency_ns.sum()) / 1e9))


def _order(facts: Facts) -> Iterator[Finding]:
    """Look whether each query began after the one before it had ended, and the last ended with the timed part."""
    starts_ns, latency_ns = facts.raw.get("query_start"), facts.raw.get("latency")
    if facts.record.scenario != "single_stream" or starts_ns is None or latency_ns is None or latency_ns.size == 0:
        return
    if starts_ns.size != latency_ns.size:
        yield Difference("samples.query_start", int(starts_ns.size), int(latency_ns.size))
        return
    early = int(np.count_nonzero(starts_ns[1:] < starts_ns[:-1] + latency_ns[:-1]))
    yield from compare("samples.query_start: queries that began before the one before had ended", 0, early)
    if facts.record.windows is not None:
        yield from compare("windows.timed_end_ns", facts.record.windows.timed_end_ns, int(starts_ns[-1] + latency_ns[-1]))


def _stages(facts: Facts) -> Iterator[Finding]:
    for name in ("preprocess", "postprocess"):
        stated, durations_ns = getattr(facts.record, name), facts.raw.get(name)
        if durations_ns is None:
            if stated is not None:
                yield Left(name, NO_SAMPLES)
            continue
        yield from compare(name, stated, statistics.stage(durations_ns))


def _energy(facts: Facts) -> Iterator[Finding]:
    record = facts.record
    if record.windows is None or not record.power_traces:
        if record.energy is not None:
            yield Left("energy", "the record does not say when the run was idle and what its sensor was: an older agent made it")
        return
    series = {one.name: one for one in record.samples}
    traces = [power_series.unpack(said, series, record.windows.timed_start_ns) for said in record.power_traces]
    timed, before, after = windows.absolute(record.windows)
    energy, reason = per_inference.widest(traces, timed, before, after, record.latency.count)
    yield from compare("energy", record.energy, energy)
    yield from compare("energy_reason", record.energy_reason, reason)


def _answers(facts: Facts) -> Iterator[Finding]:
    if facts.record.accuracy is not None:
        yield Left("accuracy", "the model's answers are not kept: it needs the model and the photographs")
    if facts.record.output_check.compared:
        yield Left("output_check", "the compared outputs are not kept")


def _verdict(facts: Facts) -> Iterator[Finding]:
    try:
        measured = _measured(facts)
    except (TypeError, ConfigError) as error:
        yield Left("verdict", f"the record does not hold all that the rules look at: {error}")
        return
    judged = verdict.judge(measured, facts.record.conditions)
    yield from compare("verdict.state", facts.record.verdict.state, judged.state)
    yield from compare("verdict.reasons", facts.record.verdict.reasons, judged.reasons)


def _measured(facts: Facts) -> job.Measured:
    """Return what the measuring process reported, as far as the record holds it.

    Raises:
        TypeError: a part of it is neither in the record nor follows from it.
        ConfigError: the samples are not there.
    """
    latency_ns = facts.raw.get("latency")
    if latency_ns is None or latency_ns.size == 0 or facts.record.windows is None:
        raise ConfigError(NO_SAMPLES)
    timed, before, after = windows.absolute(facts.record.windows)
    thirds = np.array_split(latency_ns, min(3, latency_ns.size))
    follows: dict[str, Any] = {
        "timed": timed,
        "idle_before": before,
        "idle_after": after,
        "thirds_p50_ms": tuple(float(np.median(third)) / 1e6 for third in thirds),
        "guesses": (),
    }
    held = {name: getattr(facts.record, name) for name in records.RunRecord.__struct_fields__}
    known = held | follows
    return job.Measured(**{name: known[name] for name in job.Measured.__struct_fields__ if name in known})


PARTS: tuple[Callable[[Facts], Iterator[Finding]], ...] = (_latency, _order, _stages, _energy, _answers, _verdict)
