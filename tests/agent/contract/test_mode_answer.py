"""Facts about `edgemeter.agent.contract.mode_answer`.

The answer says which power mode to take, and how certain that is.
"""

import msgspec
import numpy as np
import pytest

from edgemeter.agent.contract.mode_answer import mode_answers
from edgemeter.agent.contract.record_figures import Load
from tests.fixtures.record_factory import (
    make_energy,
    make_environment,
    make_generation,
    make_generation_energy,
    make_latency,
    make_record,
    make_steady,
    violating,
)
from tests.fixtures.snapshot import same_as_snapshot

# Three runs of a mode scatter by so much.
SCATTER = (0.999, 1.0, 1.001)


def runs_in(mode, p50_ms, frame_mj=280.0, scatter=SCATTER, steady=None, **changes):
    """Return three runs in a power mode.

    `steady` are changes of its frames, without which the queries come one after the other.
    """
    fields = {"environment": make_environment(power_mode=mode)} | changes
    if steady is not None:
        fields |= {
            "scenario": "steady",
            "steady": make_steady(**{"late": 0, "missed_ratio": 0.0} | steady),
        }
    return [
        make_record(
            latency=make_latency(p50_ms=p50_ms * ratio),
            energy=make_energy(gross_mj=frame_mj * ratio),
            **fields,
        )
        for ratio in scatter
    ]


def cheap(**changes):
    return runs_in("0 15W", 40.0, 273.0, **changes)


def fast(**changes):
    return runs_in("1 25W", 29.0, 333.0, **changes)


def replaced(run, part, **changes):
    return msgspec.structs.replace(
        run, **{part: msgspec.structs.replace(getattr(run, part), **changes)}
    )


def frames_of(missed, frames=54_000):
    """Return an hour's frames of which so many were missed."""
    return make_steady(frames=frames, late=missed, missed_ratio=missed / frames)


def with_frames(mode, each, p50_ms=40.0, frame_mj=280.0):
    runs = runs_in(mode, p50_ms, frame_mj, scatter=SCATTER[: len(each)], scenario="steady")
    return [
        msgspec.structs.replace(run, steady=steady) for run, steady in zip(runs, each, strict=True)
    ]


def seconds_at(mode, p50_ms, frame_mj, missed):
    """Return three runs of 10.2 s, 153 frames each, of which the first misses some."""
    return with_frames(mode, [frames_of(count, 153) for count in (missed, 0, 0)], p50_ms, frame_mj)


def queries_at(mode, p50_ms, is_sustained, **changes):
    """Return runs with queries that arrive at random, 15 a second."""
    load = Load(samples=64, target_per_s=15.0, is_sustained=is_sustained)
    return runs_in(mode, p50_ms, scenario="poisson", load=load, **changes)


DOUBTED = violating("disturbed", "schedule-not-kept")
PUBLISHED = {"provenance": {"latency": "measured", "energy": "published"}}
SHORT = {"frames": 40, "deadline_ms": 1000 / 15}
HOURS = with_frames("0 15W", [frames_of(0), frames_of(0), frames_of(1000)], 40.0, 273.0)
REVERSED = {
    energy_mj: [replaced(run, "energy", gross_mj=energy_mj) for run in cheap(steady={})]
    for energy_mj in (-273.0, 0.0)
}
WITHOUT_ENERGY = [msgspec.structs.replace(run, energy=None) for run in fast()]
LATE = [
    msgspec.structs.replace(run, verdict=DOUBTED)
    for run in with_frames("0 15W", [frames_of(31, 153)] * 3, 30.0, 273.3)
]
SECONDS = seconds_at("1 25W", 20.0, 333.3, 0)
PARTLY = seconds_at("0 15W", 30.0, 273.3, 0)
PARTLY[1] = msgspec.structs.replace(
    PARTLY[1], energy=None, reasons={"energy": "no reading for 0.5 s"}
)
NEAR = ({"scatter": (0.8, 1.2), "steady": {}}, (("0 15W", 40.0, 273.0), ("1 25W", 39.9, 273.5)))
ANSWERS = {
    "the cheapest that holds the rate, what a faster one costs, and which does not hold it": (
        runs_in("2 7W", 90.0, 140.0, steady={"late": 108, "missed_ratio": 0.12}),
        cheap(steady={}),
        fast(steady={}),
    ),
    "a hundred frames without a miss leave a few in a hundred possible": (
        cheap(steady=SHORT),
        fast(steady=SHORT),
    ),
    "two runs without a miss do not make up for one that throttled": (
        HOURS,
        fast(steady={}),
    ),
    "queries at random: one rate is too high": (
        queries_at("3 7W", 900.0, False, verdict=violating("invalid", "rate-not-sustained")),
        queries_at("0 15W", 40.0, True),
        queries_at("1 25W", 29.0, True),
    ),
    "queries at random: a schedule too short to tell": (
        queries_at("0 15W", 40.0, None),
        queries_at("1 25W", 29.0, None),
    ),
    "an energy that was not measured": (cheap(**PUBLISHED), fast(**PUBLISHED)),
    "energies of two sensors": (
        cheap(),
        [replaced(run, "energy", sensor="ina226") for run in fast()],
    ),
    "a mode without an energy": (cheap(), WITHOUT_ENERGY),
    "closed loops": (cheap(), fast()),
    "closed loops, the fastest costs the least": (runs_in("0 15W", 40.0, frame_mj=400.0), fast()),
    "modes that differ by chance alone": (
        with_frames("0 15W", [frames_of(20), frames_of(90), frames_of(50)]),
        with_frames("1 25W", [frames_of(0)] * 3, 29.0, 333.0),
    ),
    "two runs of each, near": tuple(runs_in(*mode, **NEAR[0]) for mode in NEAR[1]),
    "one run of each": (cheap(scatter=(1.0,)), fast(scatter=(1.0,))),
    "an energy below zero": (REVERSED[-273.0], fast(steady={})),
    "an energy of zero in one run": ([REVERSED[0.0][0], *cheap(steady={})[1:]], fast(steady={})),
    "runs that were left out, and disturbed ones": (
        [*cheap(), *cheap(scatter=(1.0,), verdict=violating("invalid", "throttled"))],
        fast(verdict=violating("disturbed", "busy-machine")),
    ),
    "a cheaper mode that possibly holds the rate": (
        seconds_at("0 15W", 30.0, 273.3, 2),
        SECONDS,
        seconds_at("2 MAXN", 15.0, 513.3, 2),
    ),
    "misses of every run, which Edgemeter's own wake-ups may have caused": (LATE, SECONDS),
    "misses of every run": (
        [msgspec.structs.replace(run, verdict=violating("ok")) for run in LATE],
        SECONDS,
    ),
    "a run without an energy": (PARTLY, SECONDS),
}


def test_the_answer_is_a_table_with_marks():
    """The table of each case also shows whether a mode meets the deadline."""
    blocks = []
    for title, modes in ANSWERS.items():
        (answer,) = mode_answers(run for runs in modes for run in runs)
        headings, columns = zip(*answer.columns.items(), strict=True)
        lines = [" | ".join(cells) for cells in (headings, *zip(*columns, strict=True))]
        blocks.append("\n".join((f"== {title}", *lines, "")))
    same_as_snapshot("power-mode-answers", "\n".join(blocks))


def sessions_of_modes(draw, *, in_one, first=(1.0, 1.0)):
    """Return the marks of eight modes, the first of which has other figures.

    Sessions scatter by 1.5% and runs within one by 1%. All modes take turns in one session of four
    rounds, which scatter by 0.5%, or each has a session of its own on the same day.
    """
    sessions, rounds = (
        np.exp(draw.normal(0, sd, (size, 2))) for sd, size in ((0.015, 8), (0.005, 4))
    )
    runs = []
    for mode, repeat in np.ndindex(8, 4):
        ratios = np.exp(draw.normal(0, 0.01, 2)) * (
            sessions[0] * rounds[repeat] if in_one else sessions[mode]
        )
        p50_ms, gross_mj = (
            float(figure * ratio)
            for figure, ratio in zip((40.0, 280.0), ratios * (1 if mode else first), strict=True)
        )
        runs.append(
            make_record(
                environment=make_environment(power_mode=f"{mode} {mode}W"),
                latency=make_latency(p50_ms=p50_ms),
                energy=make_energy(gross_mj=gross_mj),
                session_started_at_ns=1 + (0 if in_one else mode),
                repeat=repeat,
            )
        )
    (answer,) = mode_answers(runs)
    return answer.modes


@pytest.mark.parametrize("in_one", [True, False])
def test_equal_modes_are_rarely_told_apart(in_one):
    """Of eight equal modes, one is set apart in at most 5% of the answers.

    They are judged by two figures, and chance allows six of 60.
    """
    draw = np.random.default_rng(1)
    wrong = sum(
        any(len(marks) < 2 for marks in sessions_of_modes(draw, in_one=in_one).values())
        for _ in range(60)
    )
    assert wrong <= 6


@pytest.mark.parametrize("in_one", [True, False])
@pytest.mark.parametrize(("first", "mark"), [((1.1, 1.0), "fastest"), ((1.0, 1.1), "most frugal")])
def test_a_mode_that_is_a_tenth_worse_is_found(in_one, first, mark):
    """A mode that is slower or takes more energy is found in nine of ten answers."""
    draw = np.random.default_rng(2)
    times_found = sum(
        not any(
            mark in words for words in sessions_of_modes(draw, in_one=in_one, first=first)["0W"]
        )
        for _ in range(20)
    )
    assert times_found >= 18


def test_one_mode_two_boards_and_two_models_are_no_sweep():
    """Only runs that differ in the mode alone are compared."""
    assert mode_answers(cheap()) == []
    assert mode_answers([*cheap(), *fast(device="pi-2")]) == []


def test_a_language_model_is_judged_by_its_tokens():
    """The mode of 25 W is 46% faster than that of 15 W by its tokens a second.

    The figures are those of Llama 3.2 1B on an Orin Nano Super, as smolhub.com has them in its
    "Tiny LLM Benchmark" of 29 May 2026.
    """
    runs = []
    for mode, tokens_per_s, tokens_per_j in (("0 15W", 32.3, 4.54), ("1 25W", 47.0, 4.67)):
        energy = make_generation_energy(output_token_gross_mj=1e3 / tokens_per_j)
        generation = make_generation(decode_tokens_per_s=tokens_per_s, energy=energy)
        runs.append(
            make_record(environment=make_environment(power_mode=mode), generation=generation)
        )
    (answer,) = mode_answers(runs)
    assert answer.modes == {
        "15W": (
            "not significantly different from the fastest",
            "not significantly different from the most frugal",
        ),
        "25W": ("fastest", "most frugal"),
    }
