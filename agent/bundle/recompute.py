"""Recomputes every statistic of a record from its raw samples, and compares it with what the record states, field by field."""

import math
import re
from collections.abc import Callable, Collection, Iterator
from typing import Any

import msgspec
import numpy as np

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.bundle.record_facts import RecordFacts
from edgemeter.agent.contract import samples
from edgemeter.agent.contract.energy_provenance import ESTIMATE_SENSOR
from edgemeter.agent.contract.load_sweep import requests_per_s
from edgemeter.agent.contract.record import RunRecord
from edgemeter.agent.contract.record_generation import Generation
from edgemeter.agent.energy import per_inference
from edgemeter.agent.energy.generation_energy import SHARED, generation_energy, generation_windows, served_elsewhere
from edgemeter.agent.energy.per_inference import estimated_energy
from edgemeter.agent.energy.refusals import is_frozen
from edgemeter.agent.energy.window import absolute_windows
from edgemeter.agent.engine import job
from edgemeter.agent.engine.scenarios import generation_statistics, scenario, steady
from edgemeter.agent.engine.scenarios.goodput import goodput_of
from edgemeter.agent.engine.scenarios.latency_statistics import summarise_latency, summarise_stage
from edgemeter.agent.engine.scenarios.scenario import load_of_timed
from edgemeter.agent.engine.served_queries import with_outcome
from edgemeter.agent.session import sustained
from edgemeter.agent.session.run_record import lost_sensors, sensor_warnings
from edgemeter.agent.verdict import accuracy_rules
from edgemeter.agent.verdict import judge as verdict
from edgemeter.agent.verdict.rule import SensorFaults

# Sums may be added in another order by another version of numpy; anything beyond is another number.
RELATIVE = 1e-9
ABSOLUTE = 1e-12
# Sentences for people: their wording differs between versions, so only the rule or sensor that they name and their figures count.
TEXTS = re.compile(r"generation\.energy[a-z_.]*_reason|verdict\.(reasons|notes)|energy_reason|other_energy_reasons|sustained\.evidence")
NO_SAMPLES = "its raw samples are not in the record"
# What was read once cannot be recomputed.
ONCE = (
    ("cold_start", "each of its times was taken once"),
    ("warm_up", "its queries are not kept"),
    ("memory", "the kernel's own figures, read once"),
    ("conditions", "summaries of readings that are not kept"),
)
NOT_KEPT = (
    ("accuracy", "it needs the model and the photographs"),
    ("accuracy_gate", "it follows from the accuracy"),
    ("answers", "the outputs are not kept"),
    ("agreement", "the compared outputs are not kept"),
    ("scheduling", "the kernel's own figures, read once"),
    ("cool_down", "it was before the run"),
    ("together", "it needs the runs of the other models"),
)


class SameFigure(msgspec.Struct, frozen=True):
    """A field with the stated value."""

    field: str


class FigureDifference(msgspec.Struct, frozen=True):
    """A field with another value."""

    field: str
    stated: Any
    recomputed: Any


class NotRecomputed(msgspec.Struct, frozen=True):
    """A part of the record that cannot be recomputed, and why."""

    field: str
    why: str


FigureFinding = SameFigure | FigureDifference | NotRecomputed


def compare_figures(field: str, stated_value: Any, recomputed: Any) -> Iterator[SameFigure | FigureDifference]:
    """Yield a finding for each single value of two Structs, dictionaries, sequences or plain values; absent is None."""
    yield from _compare_values(field, msgspec.to_builtins(stated_value), msgspec.to_builtins(recomputed))


def _compare_values(field: str, stated_value: Any, recomputed: Any) -> Iterator[SameFigure | FigureDifference]:
    if isinstance(stated_value, dict) and isinstance(recomputed, dict):
        for key in {**stated_value, **recomputed}:
            yield from _compare_values(f"{field}.{key}", stated_value.get(key), recomputed.get(key))
    elif isinstance(stated_value, list | tuple) and isinstance(recomputed, list | tuple) and len(stated_value) == len(recomputed):
        for index, (item, other) in enumerate(zip(stated_value, recomputed, strict=True)):
            yield from _compare_values(f"{field}[{index}]", item, other)
    else:
        yield SameFigure(field) if _equal(field, stated_value, recomputed) else FigureDifference(field, stated_value, recomputed)


def _equal(field: str, stated_value: Any, recomputed: Any) -> bool:
    kinds = {type(stated_value), type(recomputed)}
    if kinds == {str} and TEXTS.match(field):
        return _content(stated_value) == _content(recomputed)
    if float in kinds and kinds <= {int, float}:
        return math.isclose(stated_value, recomputed, rel_tol=RELATIVE, abs_tol=ABSOLUTE)
    return len(kinds) == 1 and bool(stated_value == recomputed)


def _content(text: str) -> tuple[str, list[str]]:
    """Return the rule or sensor that a text begins with, and its figures."""
    return text.partition(": ")[0] if ": " in text else "", re.findall(r"\d+(?:\.\d+)?", text)


def recompute(record: RunRecord) -> Iterator[FigureFinding]:
    """Yield the result for every field that can be recomputed, and which fields cannot; raises ConfigError if raw samples are damaged."""
    facts = RecordFacts(record, {series.name: samples.unpack(series) for series in record.samples})
    for part in PARTS:
        yield from part(facts)
    for field, why in (*ONCE, *(pair for pair in NOT_KEPT if getattr(record, pair[0]) is not None)):
        yield NotRecomputed(field, why)
    if record.output_check.compared:
        yield NotRecomputed("output_check", "the compared outputs are not kept")


def _latency(facts: RecordFacts) -> Iterator[FigureFinding]:
    latency_ns = facts.raw.get("latency")
    if latency_ns is None or latency_ns.size == 0:
        yield NotRecomputed("latency", NO_SAMPLES)
    else:
        yield from compare_figures("latency", facts.record.latency, summarise_latency(latency_ns))


def _load(facts: RecordFacts) -> Iterator[FigureFinding]:
    record, timed = facts.record, facts.timed
    if timed is None or record.scenario not in scenario.SCENARIOS:
        yield NotRecomputed("throughput_per_s", NO_SAMPLES)
        return
    if record.load is not None:
        load = record.load
        recomputed = load_of_timed(timed, load.samples_per_query, load.calls_per_query, load.target_per_s)
        yield from compare_figures("load", load, recomputed)
    yield from compare_figures(
        "throughput_per_s", record.throughput_per_s, scenario.throughput_per_s(record.scenario, timed, facts.inferences)
    )


def _steady(facts: RecordFacts) -> Iterator[FigureFinding]:
    """Recompute what became of frames at a fixed rate; that throttling began when the curve says is recomputed with the curve."""
    stated_figures, timed = facts.record.steady, facts.timed
    if stated_figures is None:
        return
    recomputed = None if timed is None else steady.steady_of(timed)
    if timed is None or recomputed is None or timed.arrivals_ns is None or timed.schedule is None:
        yield NotRecomputed("steady", NO_SAMPLES)
        return
    arrivals_ns = timed.arrivals_ns - timed.begin_ns
    recomputed = steady.with_throttling(recomputed, arrivals_ns, timed.latency_ns, facts.record.sustained)
    yield from compare_figures("steady", stated_figures, recomputed)
    yield from compare_figures("samples.arrival: frames off the schedule", 0, steady.off_schedule(timed.schedule, arrivals_ns))


def _order(facts: RecordFacts) -> Iterator[FigureFinding]:
    """Check that each query began after the one before it had ended, and that the last ended with the timed part."""
    if {"query_start", "latency"} <= set(facts.raw) and facts.raw["query_start"].size != facts.raw["latency"].size:
        yield FigureDifference("samples.query_start: how many", int(facts.raw["query_start"].size), int(facts.raw["latency"].size))
    timed = facts.timed
    if timed is None:
        return
    ends_ns = timed.arrived_ns + timed.latency_ns
    early = 0 if timed.overlap else int(np.count_nonzero(timed.starts_ns[1:] < ends_ns[:-1]))
    yield from compare_figures("samples.query_start: queries that began before the one before had ended", 0, early)
    # The latency of a query of several calls leaves out the time between them.
    if facts.record.load is None or facts.record.load.calls_per_query == 1:
        end_ns = max(int(ends_ns.max()) - timed.begin_ns, timed.schedule.length_ns if timed.schedule else 0)
        yield from compare_figures("windows.timed_end_ns", timed.end_ns - timed.begin_ns, end_ns)


def _generation(facts: RecordFacts) -> Iterator[FigureFinding]:
    generation = facts.record.generation
    if generation is None:
        return
    moments = generation_statistics.TokenMoments.of_series(facts.raw, generation)
    if moments is None:
        yield NotRecomputed("generation", NO_SAMPLES)
        return
    prefilled, is_counted = None, generation.counts == "exact" and generation.cached_tokens == 0
    if is_counted and generation.mean_prompt_tokens is not None:
        prefilled = round(generation.mean_prompt_tokens * moments.first_ns.size)
    recomputed = generation_statistics.with_times(generation, moments, prefilled, facts.timed, generation.streaming_reason)
    if prefilled is None:
        recomputed = msgspec.structs.replace(recomputed, prefill_tokens_per_s=generation.prefill_tokens_per_s)
    recomputed = _as_served(facts, moments, recomputed)
    if facts.record.windows is not None:
        windows = generation_windows(facts.record.samples, facts.record.windows.timed_start_ns, generation)
        run = facts.energy_run(facts.record.windows)
        energy, why = (None, SHARED) if facts.record.together else generation_energy(facts.record.energy, facts.traces(), windows, run)
        recomputed = msgspec.structs.replace(recomputed, energy=energy, energy_reason=why)
    yield from compare_figures("generation", generation, recomputed)
    yield NotRecomputed("generation.own_*, generation.encode_ms", "the engine's own timings and the tokenised text are not kept")


def _as_served(facts: RecordFacts, moments: generation_statistics.TokenMoments, recomputed: Generation) -> Generation:
    """Return the recomputed figures with the goodput of a served load."""
    generation, timed = facts.record.generation, facts.timed
    if generation is None or timed is None or generation.output_tokens_per_s is None:
        return msgspec.structs.replace(recomputed, output_tokens_per_s=None, user_tokens_per_s=None, goodput=None)
    limits_ms = generation.goodput.limits_ms if generation.goodput else {}
    rate = scenario.throughput_per_s(facts.record.scenario, timed, timed.latency_ns.size)
    return msgspec.structs.replace(recomputed, goodput=goodput_of(recomputed, moments, timed, limits_ms, rate))


def _served(facts: RecordFacts) -> Iterator[FigureFinding]:
    served, timed = facts.record.served, facts.timed
    if served is not None and timed is not None:
        limits_ms = served.goodput.limits_ms if served.goodput else {}
        recomputed = with_outcome(served, timed, limits_ms, requests_per_s(facts.record))
        yield from compare_figures("served", served, recomputed)


def _stages(facts: RecordFacts) -> Iterator[FigureFinding]:
    for name in ("preprocess", "postprocess"):
        stage, durations_ns = getattr(facts.record, name), facts.raw.get(name)
        if durations_ns is not None:
            yield from compare_figures(name, stage, summarise_stage(durations_ns))
        elif stage is not None:
            yield NotRecomputed(name, NO_SAMPLES)


def _energy(facts: RecordFacts) -> Iterator[FigureFinding]:
    record = facts.record
    if record.windows is not None and record.energy is not None and record.energy.sensor == ESTIMATE_SENSOR:
        estimate = estimated_energy(record.energy.mean_power_w, facts.energy_run(record.windows))
        yield from compare_figures("energy", record.energy, estimate)
        return
    if record.windows is None or not record.power_traces:
        if record.energy is not None:
            yield NotRecomputed("energy", "the record holds neither idle windows nor the sensor")
        return
    elsewhere = served_elsewhere(record.generation, record.runtime)
    run = facts.energy_run(record.windows)
    energies = per_inference.Energies(None, elsewhere) if elsewhere else per_inference.energies_of(facts.traces(), run)
    pairs = {
        "energy": (record.energy, energies.energy),
        "energy_reason": (record.energy_reason, energies.reason),
        "other_energies": (record.other_energies, energies.others),
        "other_energy_reasons": (record.other_energy_reasons, energies.refused),
    }
    for field, (stated_value, recomputed) in pairs.items():
        yield from compare_figures(field, stated_value, recomputed)


def _sustained(facts: RecordFacts) -> Iterator[FigureFinding]:
    """Recompute the curve of a long run; clock and temperature of each interval are taken as stated."""
    stated_curve = facts.record.sustained
    if stated_curve is None:
        return
    if facts.timed is None:
        yield NotRecomputed("sustained", NO_SAMPLES)
        return
    yield NotRecomputed("sustained.points: clock_hz, temperature_c", "the readings are not kept")
    points = sustained.sustained_of(_measured(facts), (), facts.traces()).points
    if len(points) == len(stated_curve.points):
        points = tuple(
            msgspec.structs.replace(point, clock_hz=stated_point.clock_hz, temperature_c=stated_point.temperature_c)
            for point, stated_point in zip(points, stated_curve.points, strict=True)
        )
    yield from compare_figures("sustained", stated_curve, sustained.judged(points, stated_curve.interval_s))


def _verdict(facts: RecordFacts) -> Iterator[FigureFinding]:
    try:
        measured = _measured(facts)
    except (TypeError, ConfigError) as error:
        yield NotRecomputed("verdict", f"the record does not hold all that the rules need: {error}")
        return
    record = facts.record
    energies = () if record.energy is None else (record.energy, *record.other_energies)
    warnings = sensor_warnings(record.power_traces)
    faults = SensorFaults(_frozen(facts, {energy.sensor for energy in energies}), lost_sensors(record.power_traces, energies))
    conditions = (record.conditions, record.environment, record.cool_down)
    judged = verdict.as_asked_for(verdict.judge(measured, *conditions, energies, warnings, faults), record.operating_point)
    yield from compare_figures("verdict", record.verdict, judged)


def _frozen(facts: RecordFacts, sensors: Collection[str]) -> tuple[str, ...]:
    """Return which of these sensors repeated one value, whatever this version makes of their readings."""
    if facts.record.windows is None:
        return ()
    windows = absolute_windows(facts.record.windows)
    ids = [trace.description.id for trace in per_inference.ranked(facts.traces()) if trace.description and is_frozen(trace, *windows)]
    return tuple(sensor_id for sensor_id in ids if sensor_id in sensors)


def _measured(facts: RecordFacts) -> job.MeasuredRun:
    """Return what the measuring process reported; raises TypeError if the record lacks a part of it, ConfigError if it has no samples."""
    timed, windows = facts.timed, facts.record.windows
    if timed is None or windows is None:
        raise ConfigError(NO_SAMPLES)
    window, before, after = absolute_windows(windows)
    guesses = accuracy_rules.guesses_behind(facts.record.verdict.notes)
    follows: dict[str, Any] = {"timed": window, "idle_before": before, "idle_after": after, "guesses": guesses}
    fields = {name: getattr(facts.record, name) for name in RunRecord.__struct_fields__} | follows
    return job.MeasuredRun(**{name: fields[name] for name in job.MeasuredRun.__struct_fields__ if name in fields})


PARTS: tuple[Callable[[RecordFacts], Iterator[FigureFinding]], ...] = (
    _latency, _load, _steady, _generation, _served, _order, _stages, _energy, _sustained, _verdict,
)  # fmt: skip
