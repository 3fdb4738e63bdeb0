"""Facts about `edgemeter.agent.contract.mode_answer`: which power mode to take, and how certain that is."""

import msgspec
import pytest

from edgemeter.agent.contract.mode_answer import mode_answers
from edgemeter.agent.contract.operating_point import OperatingPoint
from edgemeter.agent.contract.record_conditions import Verdict
from edgemeter.agent.contract.record_figures import Load
from tests.fixtures.record_factory import (
    make_energy,
    make_environment,
    make_generation,
    make_generation_energy,
    make_latency,
    make_record,
    make_steady,
)
from tests.fixtures.snapshot import same_as_snapshot

# Three runs of a mode scatter by so much.
SCATTER = (0.999, 1.0, 1.001)


def runs_in(mode, p50_ms, power_w=4.0, frame_mj=280.0, scatter=SCATTER, steady=None, **changes):
    """Return three runs in a power mode; `steady` are changes of its frames, without which they come one after the other."""
    fields = {"environment": make_environment(power_mode=mode)} | changes
    if steady is not None:
        fields |= {"scenario": "steady", "steady": make_steady(**{"effective": 900, "late": 0, "missed_ratio": 0.0} | steady)}
    return [
        make_record(
            latency=make_latency(p50_ms=p50_ms * ratio),
            energy=make_energy(gross_mj=frame_mj * ratio, mean_power_w=power_w * ratio),
            **fields,
        )
        for ratio in scatter
    ]


def cheap(**changes):
    """Return runs in 15 W."""
    return runs_in("0 15W", 40.0, 4.1, 273.0, **changes)


def fast(**changes):
    """Return runs in 25 W."""
    return runs_in("1 25W", 29.0, 5.0, 333.0, **changes)


def replaced(run, part, **changes):
    """Return the run with other values in one of its parts."""
    return msgspec.structs.replace(run, **{part: msgspec.structs.replace(getattr(run, part), **changes)})


def frames_of(missed, frames=54_000, **changes):
    """Return an hour's frames of which so many were missed one by one, each beside none."""
    ratio = missed / frames
    alone = {"frames": frames, "effective": frames, "late": missed, "missed_ratio": ratio, "bursts": missed}
    alone |= {"longest_burst": min(missed, 1), "longest_row": min(missed, 1), "missed_low_ratio": 0.0, "missed_high_ratio": ratio + 7e-5}
    return make_steady(**{**alone, **changes})


def with_frames(mode, each, p50_ms=40.0, power_w=4.0, frame_mj=280.0):
    """Return a run for each of these frames."""
    runs = runs_in(mode, p50_ms, power_w, frame_mj, scatter=SCATTER[: len(each)], scenario="steady")
    return [msgspec.structs.replace(run, steady=steady) for run, steady in zip(runs, each, strict=True)]


def seconds_at(mode, p50_ms, power_w, frame_mj, missed, **changes):
    """Return three runs of 10.2 s, 153 frames each, of which the first misses some."""
    return with_frames(mode, [frames_of(count, 153, **(changes if count else {})) for count in (missed, 0, 0)], p50_ms, power_w, frame_mj)


def queries_at(mode, p50_ms, is_sustained, **changes):
    """Return runs with queries that arrive at random, 15 a second."""
    load = Load(samples_per_query=1, samples=64, target_per_s=15.0, is_sustained=is_sustained)
    return runs_in(mode, p50_ms, scenario="poisson", load=load, **changes)


DOUBTED = Verdict(state="suspect", reasons=("schedule-not-kept: Edgemeter woke up to 30.4 ms late",))
ESTIMATED = {"provenance": {"latency": "measured", "energy": "estimated"}}
SHORT = {"frames": 40, "effective": 40, "deadline_ms": 1000 / 15}
HOT = {"late": 1000, "missed_ratio": 1000 / 54_000, "missed_low_ratio": 0.017, "missed_high_ratio": 0.02}
HOURS = cheap(steady={"frames": 54_000, "effective": 54_000, "missed_low_ratio": 0.0, "missed_high_ratio": 1e-4})
REVERSED = {energy_mj: [replaced(run, "energy", gross_mj=energy_mj) for run in cheap(steady={})] for energy_mj in (-273.0, 0.0)}
WITHOUT_ENERGY = [msgspec.structs.replace(run, energy=None) for run in fast()]
LATE_ONCE = [msgspec.structs.replace(run, verdict=DOUBTED) for run in seconds_at("0 15W", 30.0, 4.1, 273.3, 1, woke_late=1)]
SECONDS = seconds_at("1 25W", 20.0, 5.0, 333.3, 0)
PARTLY = seconds_at("0 15W", 30.0, 4.1, 273.3, 0)
PARTLY[1] = msgspec.structs.replace(PARTLY[1], energy=None, energy_reason="no reading for 0.5 s")
NEAR = ({"scatter": (0.8, 1.2), "steady": {}}, (("0 15W", 40.0, 4.10, 273.0), ("1 25W", 39.9, 4.11, 273.5)))
ANSWERS = {
    "the cheapest that holds the rate, what a faster one costs, and which does not hold it": (
        runs_in("2 7W", 90.0, 2.0, 140.0, steady={"late": 108, "missed_ratio": 0.12}), cheap(steady={}), fast(steady={}),
    ),
    "a hundred frames without a miss leave a few in a hundred possible": (cheap(steady=SHORT), fast(steady=SHORT)),
    "frames that depend too much have no bounds": (cheap(steady={"effective": None}), fast(steady={})),
    "two runs without a miss do not make up for one that throttled": (
        [*HOURS[:2], replaced(HOURS[2], "steady", **HOT)], fast(steady={}),
    ),
    "queries at random: one rate is too high": (
        queries_at("3 7W", 900.0, False, verdict=Verdict(state="invalid", reasons=("rate-not-sustained: it grew",))),
        queries_at("0 15W", 40.0, True), queries_at("1 25W", 29.0, True),
    ),
    "queries at random: a schedule too short to tell": (queries_at("0 15W", 40.0, None), queries_at("1 25W", 29.0, None)),
    "an energy that was not measured": (cheap(**ESTIMATED), fast(**ESTIMATED)),
    "energies of two sensors": (cheap(), [replaced(run, "energy", sensor="ina226") for run in fast()]),
    "a mode without an energy": (cheap(), WITHOUT_ENERGY),
    "closed loops": (cheap(), fast()),
    "closed loops, the fastest costs the least": (runs_in("0 15W", 40.0, frame_mj=400.0), fast()),
    "modes that differ by chance alone": (
        with_frames("0 15W", [frames_of(20), frames_of(90), frames_of(50)]), with_frames("1 25W", [frames_of(0)] * 3, 29.0, 5.0),
    ),
    "two runs of each, near": tuple(runs_in(*mode, **NEAR[0]) for mode in NEAR[1]),
    "one run of each": (cheap(scatter=(1.0,)), fast(scatter=(1.0,))),
    "an energy below zero": (REVERSED[-273.0], fast(steady={})),
    "an energy of zero in one run": ([REVERSED[0.0][0], *cheap(steady={})[1:]], fast(steady={})),
    "a power below zero": (runs_in("0 15W", 40.0, -4.1, 273.0, steady={}), fast(steady={})),
    "runs that were left out, and suspect ones": (
        [*cheap(), *cheap(scatter=(1.0,), verdict=Verdict(state="invalid", reasons=("throttled: hot",)))],
        fast(verdict=Verdict(state="suspect", reasons=("busy-machine: top",))),
    ),
    "a cheaper mode that possibly holds the rate": (
        seconds_at("0 15W", 30.0, 4.1, 273.3, 1), SECONDS, seconds_at("2 MAXN", 15.0, 7.7, 513.3, 1),
    ),
    "a miss by Edgemeter's own wake-up": (LATE_ONCE[:1] + seconds_at("0 15W", 30.0, 4.1, 273.3, 1)[1:], SECONDS),
    "all misses by Edgemeter's own wake-ups": (with_frames("0 15W", [frames_of(31, 153, woke_late=31)] * 3, 30.0, 4.1, 273.3), SECONDS),
    "a tenth of the misses by its wake-ups": (with_frames("0 15W", [frames_of(31, 153, woke_late=3)] * 3, 30.0, 4.1, 273.3), SECONDS),
    "a run without an energy": (PARTLY, SECONDS),
}  # fmt: skip


def test_the_answer_is_one_sentence():
    """By case: the sentence, and of each mode whether it holds the rate."""
    blocks = []
    for title, modes in ANSWERS.items():
        (answer,) = mode_answers(run for runs in modes for run in runs)
        holds = ", ".join(f"{point.name} {point.holds}" for point in answer.points)
        blocks.append(f"== {title}\n{answer.summary}\nholds: {holds}\n")
    same_as_snapshot("power-mode-answers", "\n".join(blocks))


def test_one_mode_two_boards_and_two_models_are_no_sweep():
    """Only runs that differ in the mode alone are compared."""
    assert mode_answers(cheap()) == []
    assert mode_answers([*cheap(), *fast(device="pi-2")]) == []


def test_a_language_model_is_judged_by_its_tokens():
    """Llama 3.2 1B on an Orin Nano Super, as smolhub.com has it in its "Tiny LLM Benchmark" of 29 May 2026: 25 W is 46% faster."""
    runs = []
    for mode, tokens_per_s, tokens_per_j in (("0 15W", 32.3, 4.54), ("1 25W", 47.0, 4.67)):
        energy = make_generation_energy(output_token_gross_mj=1e3 / tokens_per_j)
        generation = make_generation(decode_tokens_per_s=tokens_per_s, energy=energy)
        runs.append(make_record(environment=make_environment(power_mode=mode), generation=generation))
    (answer,) = mode_answers(runs)
    assert [point.speed for point in answer.points] == [32.3, 47.0]
    assert [point.energy_mj for point in answer.points] == pytest.approx([220.26, 214.13], abs=0.01)
    assert "25W is possibly 46% faster than 15W" in answer.summary


def point_of(runs):
    """Return the point of the first mode, beside one that holds."""
    (answer,) = mode_answers([*runs, *with_frames("1 25W", [frames_of(0)] * 3, 29.0)])
    return answer.points[0]


def test_runs_are_pooled_with_the_dependence_of_the_worst():
    """Rows of hundreds in one run: its siblings without a miss do not have that many independent frames either, bursts counted or not."""
    clean = [frames_of(0)] * 2
    of_rows = {1100: {"bursts": 2, "effective": 60}, 1400: {"bursts": 4, "effective": 108}, 500: {"bursts": 1, "effective": 54}}
    for missed, least_high_ratio in ((1100, 0.024), (1400, 0.022), (500, 0.017)):
        for uncounted in ({}, {"bursts": None, "longest_burst": None}):
            rows = {"longest_row": 600, "longest_burst": 600, "missed_low_ratio": 0.0, **of_rows[missed], **uncounted}
            point = point_of(with_frames("0 15W", [frames_of(missed, **rows), *clean]))
            assert point.holds is None, rows
            assert least_high_ratio < point.missed.high_ratio < 3 * least_high_ratio, rows


def test_runs_that_differ_more_than_chance_lets_them_are_no_more_than_runs():
    """One run of three misses 0.9% one by one, two none: what the next one does is not known to a tenth."""
    point = point_of(with_frames("0 15W", [frames_of(486), frames_of(0), frames_of(0)]))
    assert point.holds is None
    assert point.missed.high_ratio > 0.015
    assert point_of(with_frames("0 15W", [frames_of(162), frames_of(150), frames_of(170)])).holds is True


def test_clocks_that_differ_in_the_fourth_digit_are_two_settings():
    """Memory at 2.131 and 2.133 GHz: runs of both are not averaged."""
    points = [OperatingPoint(memory_max_hz=hz) for hz in (2.131e9, 2.133e9, 1.5e9)]
    (answer,) = mode_answers(run for point in points for run in cheap(operating_point=point))
    assert [(point.name, point.runs) for point in answer.points] == [
        (f"memory at most {clock} GHz", 3) for clock in ("2.131", "2.133", "1.50")
    ]
