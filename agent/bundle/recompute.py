"""Recomputes the values of a record from its raw samples, and compares them with the record's.

Not recomputed: texts, uncertainties, the verdict, and values that were read once or need the model
(accuracy, cold start, memory).
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from edgemeter.agent.contract import samples
from edgemeter.agent.contract.model_formats import SERVED
from edgemeter.agent.contract.record import RunRecord
from edgemeter.agent.contract.record_generation import UNSTREAMED
from edgemeter.agent.energy.per_inference import EnergyRun
from edgemeter.agent.energy.queries import Times, no_pauses
from edgemeter.agent.energy.sampler import SensorTrace, unpack_trace
from edgemeter.agent.energy.window import absolute_windows
from edgemeter.agent.engine.scenarios import generation_statistics, scenario, steady
from edgemeter.agent.engine.scenarios.latency_statistics import summarise_latency, summarise_stage
from edgemeter.agent.engine.scenarios.timing import FailedQuery, FrameSchedule, TimedQueries
from edgemeter.agent.session import sustained
from edgemeter.agent.session.run_energy import (
    energies_of_run,
    energy_run_of,
    generation_with_energy,
)


class FigureDifference(msgspec.Struct, frozen=True):
    """A value of the record that does not follow from the raw samples."""

    field: str
    stated: Any
    recomputed: Any


# A field's name, its value in the record, and the recomputed value.
Pairs = Iterator[tuple[str, Any, Any]]


@dataclass(frozen=True, slots=True)
class _Run:
    record: RunRecord
    raw: Mapping[str, NDArray[Any]]
    timed: TimedQueries | None
    traces: Sequence[SensorTrace]
    energy_run: EnergyRun


def recompute(record: RunRecord) -> tuple[dict[str, int], tuple[FigureDifference, ...]]:
    """Recompute a record from its raw samples, and compare.

    Returns the number of values of each part of the record that follow from the samples, and the
    values that differ. Without samples nothing is recomputed.

    Raises:
        ConfigError: the samples are damaged.
    """
    series, windows = {series.name: series for series in record.samples}, record.windows
    if not series or windows is None:
        return {}, ()
    raw = {name: samples.unpack(packed) for name, packed in series.items()}
    traces = [unpack_trace(trace, series, windows.timed_start_ns) for trace in record.power_traces]
    energy_run = energy_run_of(record, absolute_windows(windows), record.environment)
    run = _Run(record, raw, timed_of_record(record, raw), traces, energy_run)
    checked, differences = Counter[str](), []
    for field, stated_part, recomputed_part in (pair for part in PARTS for pair in part(run)):
        for name, stated_value, recomputed in single_values(
            field, msgspec.to_builtins(stated_part), msgspec.to_builtins(recomputed_part)
        ):
            checked[re.split(r"\W", name)[0]] += 1
            if not are_equal(stated_value, recomputed):
                differences.append(FigureDifference(name, stated_value, recomputed))
    return dict(checked), tuple(differences)


def single_values(field: str, stated_value: Any, recomputed: Any) -> Pairs:
    """Yield each pair of values of two dictionaries or lists, without texts and uncertainties."""
    if isinstance(stated_value, dict) and isinstance(recomputed, dict):
        for key in {**stated_value, **recomputed}:
            if not key.endswith("_u_mj"):
                yield from single_values(
                    f"{field}.{key}", stated_value.get(key), recomputed.get(key)
                )
    elif (
        isinstance(stated_value, list | tuple)
        and isinstance(recomputed, list | tuple)
        and len(stated_value) == len(recomputed)
    ):
        for index, (item, other) in enumerate(zip(stated_value, recomputed, strict=True)):
            yield from single_values(f"{field}[{index}]", item, other)
    elif not {type(stated_value), type(recomputed)} <= {str, type(None)}:
        yield field, stated_value, recomputed


def are_equal(stated_value: Any, recomputed: Any) -> bool:
    """Return whether two values are equal except for rounding.

    None is not zero, and true is not 1.
    """
    kinds = {type(stated_value), type(recomputed)}
    # Another version of numpy may add in another order.
    if float in kinds and kinds <= {int, float}:
        return math.isclose(stated_value, recomputed, rel_tol=1e-9, abs_tol=1e-12)
    return len(kinds) == 1 and bool(stated_value == recomputed)


def _stages(run: _Run) -> Pairs:
    of_queries = partial(summarise_latency, scenario=run.record.scenario)
    summaries: Mapping[str, Callable[[NDArray[Any]], object]]
    summaries = {
        "latency": of_queries,
        "preprocess": summarise_stage,
        "postprocess": summarise_stage,
    }
    for name, summarise in summaries.items():
        if (durations_ns := run.raw.get(name)) is not None:
            yield (
                name,
                getattr(run.record, name),
                summarise(durations_ns) if durations_ns.size else None,
            )


def timed_of_record(record: RunRecord, raw: Mapping[str, Times]) -> TimedQueries | None:
    """Return the timed queries that `time_series` packed, from a record's raw samples by name.

    None if they are incomplete.
    """
    starts_ns, latency_ns, windows, load = (
        raw.get("query_start"),
        raw.get("latency"),
        record.windows,
        record.load,
    )
    if (
        starts_ns is None
        or latency_ns is None
        or windows is None
        or not latency_ns.size == starts_ns.size > 0
    ):
        return None
    begin_ns, arrivals_ns, unserved, schedule = (
        windows.timed_start_ns,
        raw.get("arrival"),
        load.unserved if load else 0,
        None,
    )
    if record.steady is not None:
        schedule = replace(
            steady.schedule_of_record(record.steady), frames=latency_ns.size + unserved
        )
    none = np.empty(0, np.int64)
    pauses = [raw.get(name, none) for name in ("pause_start", "pause_end")]
    users, has_server = (
        load.concurrency if load else None,
        record.generation is not None or record.runtime.name == SERVED,
    )
    return TimedQueries(
        starts_ns=starts_ns + begin_ns,
        latency_ns=latency_ns,
        # A scenario that is timed over its queries only has no start of its own.
        begin_ns=begin_ns,
        end_ns=begin_ns + windows.timed_end_ns,
        arrivals_ns=None if arrivals_ns is None else arrivals_ns + begin_ns,
        unserved=unserved,
        overlap=users is not None or (arrivals_ns is not None and schedule is None and has_server),
        users=users,
        pauses_ns=(np.stack(pauses, axis=1) if pauses[0].size == pauses[1].size else no_pauses())
        + begin_ns,
        ramp_up_ns=raw.get("ramp_up_end", none) + begin_ns,
        failures=[
            FailedQuery(kind)
            for kind, count in (load.failures if load else {}).items()
            for _ in range(count)
        ],
        schedule=schedule,
    )


def off_schedule(schedule: FrameSchedule, arrivals_ns: Times) -> int:
    """Return the number of arrivals that are not in the schedule, or not in its order."""
    numbers = schedule.numbers(arrivals_ns)
    is_known = (numbers >= 0) & (numbers < schedule.frames) & (np.diff(numbers, prepend=-1) > 0)
    return int(np.count_nonzero(~is_known | (schedule.arrivals_ns(numbers) != arrivals_ns)))


def _load(run: _Run) -> Pairs:
    record, timed, load = run.record, run.timed, run.record.load
    if timed is None:
        return
    count = record.latency.count
    if load is not None:
        samples_per_query = scenario.samples_per_query(timed, load.samples)
        yield "load", load, scenario.load_of_timed(timed, samples_per_query, load.target_per_s)
        # The latency of a query of several calls is that of one.
        count = load.samples * record.batch // samples_per_query
    yield (
        "throughput_per_s",
        record.throughput_per_s,
        scenario.throughput_per_s(record.scenario, timed, count),
    )
    if record.steady is not None and timed.schedule is not None and timed.arrivals_ns is not None:
        arrivals_ns = timed.arrivals_ns - timed.begin_ns
        yield "steady", record.steady, steady.steady_of(timed)
        yield (
            "samples.arrival: frames off the schedule",
            0,
            off_schedule(timed.schedule, arrivals_ns),
        )


def _order(run: _Run) -> Pairs:
    """Yield whether each query began after the previous one had ended.

    At the end, yield whether the last query ended with the timed part.
    """
    timed, starts_ns, latency_ns = run.timed, run.raw.get("query_start"), run.raw.get("latency")
    if starts_ns is not None and latency_ns is not None:
        yield "samples.query_start: count", starts_ns.size, latency_ns.size
    if timed is None:
        return
    ends_ns = timed.arrived_ns + timed.latency_ns
    early = 0 if timed.overlap else int(np.count_nonzero(timed.starts_ns[1:] < ends_ns[:-1]))
    yield "samples.query_start: queries that overlap the previous one", 0, early
    # The latency of a query of several calls excludes the time between them.
    load = run.record.load
    if load is None or scenario.samples_per_query(timed, load.samples) == run.record.batch:
        end_ns = max(
            int(ends_ns.max()) - timed.begin_ns, timed.schedule.length_ns if timed.schedule else 0
        )
        yield "windows.timed_end_ns", timed.end_ns - timed.begin_ns, end_ns


def _generation(run: _Run) -> Pairs:
    record, generation = run.record, run.record.generation
    moments = None if generation is None else generation_statistics.TokenMoments.of_series(run.raw)
    if generation is None or moments is None:
        return
    is_counted = (
        generation.counts == "exact"
        and generation.cached_tokens == 0
        and generation.mean_prompt_tokens is not None
    )
    prefilled = (
        round((generation.mean_prompt_tokens or 0) * moments.first_ns.size) if is_counted else None
    )
    recomputed, _ = generation_statistics.with_times(
        generation, moments, prefilled, run.timed, record.reasons.get(UNSTREAMED)
    )
    if prefilled is None:
        recomputed = msgspec.structs.replace(
            recomputed, prefill_tokens_per_s=generation.prefill_tokens_per_s
        )
    powered, _ = generation_with_energy(record, record.energy)
    recomputed = msgspec.structs.replace(recomputed, energy=powered.energy if powered else None)
    yield "generation", generation, recomputed


def _energies(run: _Run) -> Pairs:
    recomputed = {
        energy.sensor: energy
        for energy in energies_of_run(run.record, run.traces, run.energy_run).all()
    }
    narrower = (
        (f"other_energies[{index}]", energy)
        for index, energy in enumerate(run.record.other_energies)
    )
    for field, energy in (("energy", run.record.energy), *narrower):
        if energy is not None and energy.sensor in recomputed:
            yield field, energy, recomputed[energy.sensor]
        elif energy is not None:
            yield f"{field}.gross_mj", energy.gross_mj, None


def _sustained(run: _Run) -> Pairs:
    """Yield the curve of a long run.

    Clock and temperature of each interval are not recomputed, because their readings are not
    stored.
    """
    curve = run.record.sustained
    if curve is None or run.timed is None:
        return
    points = sustained.sustained_of(run.record, run.energy_run.timed, (), run.traces).points
    if len(points) == len(curve.points):
        points = tuple(
            msgspec.structs.replace(
                point, clock_hz=stated_point.clock_hz, temperature_c=stated_point.temperature_c
            )
            for point, stated_point in zip(points, curve.points, strict=True)
        )
    yield "sustained", curve, sustained.judged(points, curve.interval_s)


PARTS: tuple[Callable[[_Run], Pairs], ...] = (
    _stages,
    _load,
    _order,
    _generation,
    _energies,
    _sustained,
)
