"""Computes every statistic of a record again from its raw samples."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from edgemeter.agent import records, samples
from edgemeter.agent.bundle.compare import Difference, Finding, Left, compare
from edgemeter.agent.energy import estimate, per_inference, power_series, queries, usb_accelerator
from edgemeter.agent.energy.sampler import Trace
from edgemeter.agent.engine import job, statistics, windows
from edgemeter.agent.engine.scenarios import offered_load, scenario, sustained
from edgemeter.agent.engine.scenarios.timing import Timed
from edgemeter.agent.engine.verdict import judge as verdict
from edgemeter.agent.errors import ConfigError

NO_SAMPLES = "its raw samples are not in the record"
# Of what was looked at once there is nothing to compute it again from.
ONCE = (
    ("cold_start", "each of its times was taken once"),
    ("warm_up", "its queries are not kept"),
    ("memory", "the kernel's own figures, read once"),
    ("conditions", "sums of looks at the machine that are not kept"),
)
NOT_KEPT = (
    ("accuracy", "the model's answers are not kept: it needs the model and the photographs"),
    ("accuracy_gate", "it follows from the accuracy"),
    ("answers", "the model's answers are not kept"),
    ("agreement", "the compared outputs are not kept"),
    ("scheduling", "the kernel's own figures, read once"),
    ("observer", "it comes from another calibration of this machine"),
    ("cool_down", "it was before the run"),
)


@dataclass(frozen=True)
class Facts:
    """A record and its raw samples by name, whole numbers and reals as they were measured."""

    record: records.RunRecord
    raw: Mapping[str, NDArray[Any]]

    @cached_property
    def timed(self) -> Timed | None:
        """Return the timed queries on the monotonic clock, as the scenario gave them; None where the record does not hold them."""
        starts_ns, latency_ns, said = self.raw.get("query_start"), self.raw.get("latency"), self.record.windows
        if starts_ns is None or latency_ns is None or said is None or not latency_ns.size == starts_ns.size > 0:
            return None
        arrivals_ns = self.raw.get("arrival")
        return Timed(
            starts_ns=starts_ns + said.timed_start_ns,
            latency_ns=latency_ns,
            kept={},
            # What is timed over the queries only has no use for its own beginning.
            begin_ns=said.timed_start_ns,
            end_ns=said.timed_start_ns + said.timed_end_ns,
            arrivals_ns=None if arrivals_ns is None else arrivals_ns + said.timed_start_ns,
            unserved=self.record.load.unserved if self.record.load else 0,
        )

    @property
    def inferences(self) -> int:
        """Return how many samples the model took while it was timed."""
        return self.record.load.samples if self.record.load else self.record.latency.count

    def energy_run(self, said: records.Windows) -> per_inference.Run:
        """Return when and what was measured, as far as the energy asks."""
        timed, before, after = windows.absolute(said)
        rhythm = queries.queries_of(self.record.samples, timed.start_ns, timed.end_ns)
        on_usb = usb_accelerator.runs_on_usb(self.record.runtime, self.record.environment.attached)
        return per_inference.Run(timed, before, after, self.inferences, rhythm, on_usb)

    def traces(self) -> list[Trace]:
        """Return what the power sensors read."""
        if self.record.windows is None:
            return []
        series = {one.name: one for one in self.record.samples}
        start_ns = self.record.windows.timed_start_ns
        return [power_series.unpack(said, series, start_ns) for said in self.record.power_traces]


def recompute(record: records.RunRecord) -> Iterator[Finding]:
    """Yield what came of every field that can be computed again, and what cannot.

    Raises:
        ConfigError: raw samples are damaged.
    """
    facts = Facts(record, {series.name: samples.unpack(series) for series in record.samples})
    for part in PARTS:
        yield from part(facts)
    for field, why in (*ONCE, *(pair for pair in NOT_KEPT if getattr(record, pair[0]) is not None)):
        yield Left(field, why)
    if record.output_check.compared:
        yield Left("output_check", "the compared outputs are not kept")


def _latency(facts: Facts) -> Iterator[Finding]:
    latency_ns = facts.raw.get("latency")
    if latency_ns is None or latency_ns.size == 0:
        yield Left("latency", NO_SAMPLES)
    else:
        yield from compare("latency", facts.record.latency, statistics.summarise(latency_ns))


def _load(facts: Facts) -> Iterator[Finding]:
    record, timed = facts.record, facts.timed
    if timed is None or record.scenario not in scenario.SCENARIOS:
        yield Left("throughput_per_s", NO_SAMPLES)
        return
    if record.load is not None:
        said = record.load
        again = offered_load.told(timed, said.samples_per_query, said.calls_per_query, said.target_per_s)
        yield from compare("load", said, again)
    yield from compare("throughput_per_s", record.throughput_per_s, scenario.throughput_per_s(record.scenario, timed, facts.inferences))


def _order(facts: Facts) -> Iterator[Finding]:
    """Look whether each query began after the one before it had ended, and the last ended with the timed part."""
    if {"query_start", "latency"} <= set(facts.raw) and facts.raw["query_start"].size != facts.raw["latency"].size:
        yield Difference("samples.query_start: how many", int(facts.raw["query_start"].size), int(facts.raw["latency"].size))
    timed = facts.timed
    if timed is None:
        return
    ends_ns = (timed.starts_ns if timed.arrivals_ns is None else timed.arrivals_ns) + timed.latency_ns
    early = int(np.count_nonzero(timed.starts_ns[1:] < ends_ns[:-1]))
    yield from compare("samples.query_start: queries that began before the one before had ended", 0, early)
    # Between the calls of one query the clock stands: it ends later than its start and its latency say.
    if facts.record.load is None or facts.record.load.calls_per_query == 1:
        yield from compare("windows.timed_end_ns", timed.end_ns - timed.begin_ns, int(ends_ns[-1]) - timed.begin_ns)


def _stages(facts: Facts) -> Iterator[Finding]:
    for name in ("preprocess", "postprocess"):
        stated, durations_ns = getattr(facts.record, name), facts.raw.get(name)
        if durations_ns is not None:
            yield from compare(name, stated, statistics.stage(durations_ns))
        elif stated is not None:
            yield Left(name, NO_SAMPLES)


def _energy(facts: Facts) -> Iterator[Finding]:
    record = facts.record
    if record.windows is not None and record.energy is not None and record.energy.sensor == estimate.SENSOR:
        timed = windows.absolute(record.windows)[0]
        yield from compare("energy", record.energy, estimate.energy(record.energy.mean_power_w, timed, facts.inferences))
        return
    if record.windows is None or not record.power_traces:
        if record.energy is not None:
            yield Left("energy", "the record does not say when the run was idle and what its sensor was: an older agent made it")
        return
    found = per_inference.of(facts.traces(), facts.energy_run(record.windows))
    yield from compare("energy", record.energy, found.energy)
    yield from compare("energy_reason", record.energy_reason, found.reason)
    yield from compare("other_energies", record.other_energies, found.others)
    yield from compare("other_energy_reasons", record.other_energy_reasons, found.refused)


def _sustained(facts: Facts) -> Iterator[Finding]:
    """Compute the curve of a long run again; what was seen of clock and temperature in each interval is taken as stated."""
    stated = facts.record.sustained
    if stated is None:
        return
    if facts.timed is None:
        yield Left("sustained", NO_SAMPLES)
        return
    yield Left("sustained.points: clock_hz, temperature_c", "the looks at the machine are not kept")
    points = sustained.of(_measured(facts), (), facts.traces()).points
    if len(points) == len(stated.points):
        points = tuple(
            msgspec.structs.replace(point, clock_hz=one.clock_hz, temperature_c=one.temperature_c)
            for point, one in zip(points, stated.points, strict=True)
        )
    yield from compare("sustained", stated, sustained.judged(points, stated.interval_s))


def _verdict(facts: Facts) -> Iterator[Finding]:
    try:
        measured = _measured(facts)
    except (TypeError, ConfigError) as error:
        yield Left("verdict", f"the record does not hold all that the rules look at: {error}")
        return
    record = facts.record
    energies = () if record.energy is None else (record.energy, *record.other_energies)
    warnings = tuple(f"{trace.name}: {warning}" for trace in record.power_traces for warning in trace.warnings)
    judged = verdict.judge(measured, record.conditions, record.environment, record.observer, record.cool_down, energies, warnings)
    yield from compare("verdict", facts.record.verdict, judged)


def _measured(facts: Facts) -> job.Measured:
    """Return what the measuring process reported, as far as the record holds it.

    Raises:
        TypeError: a part of it is neither in the record nor follows from it.
        ConfigError: the samples are not there.
    """
    timed, said = facts.timed, facts.record.windows
    if timed is None or said is None:
        raise ConfigError(NO_SAMPLES)
    queueing_ns = 0 if timed.arrivals_ns is None else timed.starts_ns - timed.arrivals_ns
    thirds = np.array_split(timed.latency_ns - queueing_ns, min(3, timed.latency_ns.size))
    window, before, after = windows.absolute(said)
    follows: dict[str, Any] = {
        "timed": window,
        "idle_before": before,
        "idle_after": after,
        "thirds_p50_ms": tuple(float(np.median(third)) / 1e6 for third in thirds),
        "guesses": (),
    }
    known = {name: getattr(facts.record, name) for name in records.RunRecord.__struct_fields__} | follows
    return job.Measured(**{name: known[name] for name in job.Measured.__struct_fields__ if name in known})


PARTS: tuple[Callable[[Facts], Iterator[Finding]], ...] = (_latency, _load, _order, _stages, _energy, _sustained, _verdict)
