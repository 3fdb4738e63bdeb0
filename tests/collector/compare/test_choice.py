"""Test the choice of a case under limits.

No limit is said to be met that is not, the cheapest is recommended, and cases that cannot be told
apart from it are named.
"""

import dataclasses

import numpy as np
import pytest
from msgspec.structs import replace

from edgemeter.agent.base.errors import UnavailableError
from edgemeter.agent.base.statistics import student_quantile
from edgemeter.agent.contract import record_conditions
from edgemeter.agent.contract.figures import LATENCY
from edgemeter.agent.contract.record_figures import Neighbour, Together
from edgemeter.collector.compare.choice import choose
from edgemeter.collector.compare.limits import parse_requirements
from edgemeter.collector.show.words import recommended_text
from tests.fixtures.choice_cases import scored, sides
from tests.fixtures.choice_worlds import LIMITS, P50_MS, World, drawn_world
from tests.fixtures.comparison_factory import day_by_day, in_rounds, no_energy, summarised
from tests.fixtures.record_factory import make_accuracy, make_environment, make_steady, violating
from tests.fixtures.rows import table_row
from tests.fixtures.side_factory import make_side

DISTURBED = violating("disturbed", "throttled")
BESIDE = Together(
    neighbours=(Neighbour(model="llm", sha256="cd" * 32, runtime="llama", threads=1),),
    slow_down_ratio=1.5,
)


def choice_of(text, *runs_of_cases, cheapest=None):
    """Return the choice among cases, each run of a case on a day of its own."""
    named = [
        replace(run, id=f"run-{index}") for index, run in enumerate(day_by_day(*runs_of_cases))
    ]
    return choose(summarised(named), parse_requirements(text), cheapest)


def outcomes(choice):
    return {candidate.case.key.precision: candidate.outcome for candidate in choice.candidates}


def int8_of(choice):
    (candidate,) = [
        candidate for candidate in choice.candidates if candidate.case.key.precision == "int8"
    ]
    return candidate


def test_the_cheapest_case_that_meets_all_is_recommended():
    """The choice shows the deciding intervals, and how the other cases differ."""
    choice = choice_of("p50<=20ms, ap>=.72", *sides())
    assert outcomes(choice) == {"int8": "met", "fp32": "met"}
    assert (choice.recommended, choice.cheapest.name, choice.similar) == (
        int8_of(choice),
        "energy_gross_mj",
        (),
    )
    assert choice.candidates[1].against_best.outcome == "worse"
    p50 = choice.recommended.requirements[0]
    assert p50.low < 4.8 < p50.high < 5
    strict = choice_of("p50<=8ms", *sides())
    assert outcomes(strict) == {"int8": "met", "fp32": "not met"}
    assert strict.candidates[1].requirements[0].low > 8


def test_nothing_is_said_of_a_figure_that_is_missing_or_too_imprecise():
    """Such a figure is inconclusive, and the reason is given."""
    for name, limit, changes, words in (
        ("no energy", "energy<=60mJ", no_energy(), "no power sensor here"),
        ("two runs", "p50<=8ms", {"runs": 2}, "too few runs"),
        ("across", "p50<=4.8ms", {"spread": 0.05}, ""),
        ("other metric", "top-1>=.7", {}, "its accuracy is AP"),
        ("no bounds", "ap>=.7", {"accuracy": make_accuracy(value=0.741)}, "no bounds recorded"),
    ):
        with table_row(name):
            candidate = int8_of(choice_of(limit, *sides(**changes)))
            assert (candidate.outcome, candidate.requirements[0].reason) == ("inconclusive", words)


def test_the_interval_of_an_accuracy_that_is_printed_decides():
    """The interval is skewed, and its halves grow by one factor at a higher confidence.

    The factor is that of Student's t.
    """
    skewed = make_accuracy(value=0.202, low=0.153, high=0.262, images=80)
    below, inside, above = (
        int8_of(choice_of(limit, *sides(accuracy=skewed)))
        for limit in ("ap>=.13", "ap>=.27", "ap>=.30")
    )
    assert [candidate.outcome for candidate in (below, inside, above)] == [
        "met",
        "inconclusive",
        "not met",
    ]
    for candidate in (below, inside, above):
        (requirement,) = candidate.requirements
        assert requirement.confidence > 0.95
        factor = student_quantile(requirement.confidence, 1000.0) / student_quantile(0.95, 1000.0)
        assert (requirement.low, requirement.high) == pytest.approx(
            (0.202 - factor * 0.049, 0.202 + factor * 0.060)
        )
        assert requirement.further is None


def test_an_inconclusive_requirement_states_how_many_more_runs_would_decide():
    """The number is computed as for a comparison; below three runs it is those missing."""
    named = [
        replace(run, id=f"run-{index}") for index, run in enumerate(in_rounds(*sides(spread=0.12)))
    ]
    (requirement,) = int8_of(
        choose(summarised(named), parse_requirements("p50<=4.8ms"))
    ).requirements
    assert (requirement.outcome, requirement.distance.repeats) == (
        "inconclusive",
        8 + requirement.further,
    )
    (requirement,) = int8_of(choice_of("p50<=8ms", *sides(runs=2))).requirements
    assert (requirement.further, requirement.distance.repeats) == (1, 3)


def missing(late, runs=8, **changes):
    """Return the sides at 15 frames a second, of which int8 misses so many of 900.

    Int8 is the faster one.
    """
    at_rate = {"scenario": "steady", "runs": runs}
    steady = [make_steady(late=count, missed_ratio=count / 900) for count in (0, late)]
    fp32 = make_side(agent="1", seed=1, accuracy=scored(0.752), steady=steady[0], **at_rate)
    return fp32, sides(steady=steady[1], **at_rate, **changes)[1]


def test_the_cases_that_have_the_required_figure_are_chosen_among():
    """The one run at a rate of frames answers a limit of missed frames.

    It does so however many others are beside it.
    """
    offline = [
        make_side(agent="1", seed=seed, precision=precision)
        for seed, precision in enumerate(("fp32", "fp16", "int8"), 5)
    ]
    at_rate = make_side(
        agent="1", seed=1, scenario="steady", runs=8, steady=make_steady(late=0, missed_ratio=0.0)
    )
    choice = choice_of("missed<=1%", *offline, at_rate)
    assert [
        (candidate.case.key.scenario, candidate.outcome) for candidate in choice.candidates
    ] == [("steady", "met")]
    assert (choice.recommended, choice.unlike) == (choice.candidates[0], 3)
    assert choice_of("p50<=1s", *offline, at_rate).unlike == 1


def test_a_model_that_misses_frames_is_not_recommended_for_its_speed():
    """A case that misses more than 1% is out, unless a limit allows more."""
    for text, late, outcome in (
        ("p50<=20ms", 180, "not met"),
        ("p50<=20ms", 1, "met"),
        ("p50<=20ms, missed<=30%", 180, "met"),
        ("p50<=20ms, missed<=10%", 180, "not met"),
    ):
        with table_row(text, late):
            assert outcomes(choice_of(text, *missing(late)))["int8"] == outcome


def test_that_no_case_answers_in_time_is_the_reason_why_none_is_recommended():
    """The reason is given although nobody set a limit and the figure was measured."""
    _, late = missing(180)
    choice = choice_of("", late, cheapest=LATENCY)
    assert (
        recommended_text(choice) == "recommended: none, because no case surely meets missed<=0.01"
    )


def test_runs_that_are_short_show_no_tail():
    """A p90 far below its limit in each run is inconclusive, as bursts come once a minute.

    One above it in each run is not met.
    """
    for text, outcome in (("p90<=1s", "inconclusive"), ("p90<=1us", "not met"), ("p50<=1s", "met")):
        with table_row(text):
            (requirement,) = int8_of(choice_of(text, *sides())).requirements
            assert requirement.outcome == outcome
            assert requirement.reason == (
                "shown by runs of a minute or more: measure longer"
                if outcome == "inconclusive"
                else requirement.reason
            )


def test_disturbed_runs_do_not_count_where_three_others_do():
    """One throttled run of eight, twice as fast, changes nothing.

    Where all are disturbed they count.
    """
    fp32, int8 = sides()
    throttled = make_side(
        agent="1", runs=1, seed=7, factor=0.2, precision="int8", runtime="litert", verdict=DISTURBED
    )
    candidate = int8_of(choice_of("p50<=8ms", fp32, [*int8, *throttled]))
    assert (
        candidate.case.p50_ms.runs,
        candidate.case.not_counted,
        candidate.case.verdict,
        candidate.outcome,
    ) == (8, 1, "ok", "met")
    assert int8_of(choice_of("p50<=8ms", *sides(verdict=DISTURBED))).case.p50_ms.runs == 8


def test_the_more_is_decided_the_wider_is_each_interval():
    """Five more limits widen the intervals, since all of them have to hold together.

    They are of both cases, and most of them cannot be met.
    """

    def width(text):
        (requirement,) = [
            limited
            for limited in int8_of(choice_of(text, *sides())).requirements
            if limited.limit.figure.name == "latency_p50_ms"
        ]
        return requirement.high - requirement.low

    assert width("p50<=4.8ms, energy<=30mJ, memory<=500MB, ap>=.741, p90<=5.8ms") > width(
        "p50<=4.8ms"
    )


def test_what_does_not_differ_from_the_recommended_case_is_similar():
    """The cheaper value may be chance, so the other case is named."""
    fast, other = (
        make_side(
            agent="1",
            seed=seed,
            factor=0.4,
            energy_factor=0.5,
            spread=0.03,
            precision="int8",
            runtime=runtime,
        )
        for seed, runtime in ((2, "litert"), (3, "onnx"))
    )
    choice = choice_of("", fast, other, *sides()[:1])
    assert {
        choice.recommended.case.key.runtime,
        *(similar.case.key.runtime for similar in choice.similar),
    } == {"litert", "onnx"}
    assert [similar.case.key.precision for similar in choice.similar] == ["int8"]


def test_energy_is_the_cost_only_where_all_have_one_of_one_scope():
    """Where they do not, the fastest is recommended."""
    assert choice_of("", *sides()).cheapest.name == "energy_gross_mj"
    assert choice_of("", *sides(**no_energy())).cheapest.name == "latency_p50_ms"
    assert choice_of("", *sides(), cheapest="memory_peak_mb").cheapest.name == "memory_peak_mb"


def test_only_cases_that_may_stand_in_for_each_other_are_chosen_among():
    """Another scenario, task, set of data or neighbour is another question.

    Boards are chosen among only where the reader fixed none.
    """
    fp32, int8 = sides()
    for changes in (
        {"scenario": "offline"},
        {"task": "classification"},
        {"data": "0b" * 32},
        {"together": BESIDE},
    ):
        with table_row(changes):
            choice = choice_of("", fp32, int8, make_side(agent="1", seed=5, factor=0.1, **changes))
            assert (len(choice.candidates), choice.unlike) == (2, 1)
    orin = make_side(
        agent="1",
        seed=5,
        factor=0.1,
        energy_factor=0.1,
        device="orin-1",
        environment=make_environment(board="NVIDIA Jetson"),
    )
    assert choice_of("", fp32, int8, orin).recommended.name.endswith(", orin-1")
    assert choice_of("board=Raspberry Pi 5", fp32, int8, orin).recommended.name == "int8 on litert"


def test_a_case_below_the_accuracy_gate_is_out_unless_a_limit_allows_it():
    """A fast but wrong model is of no use; a reader's own limit of accuracy says what is enough."""
    bad = {"accuracy": scored(0.5)}
    choice = choice_of("p50<=20ms", *sides(**bad))
    assert choice.recommended.case.key.precision == "fp32"
    assert "its speed is not ranked" in int8_of(choice).out
    assert choice_of("p50<=20ms, ap>=.45", *sides(**bad)).recommended.case.key.precision == "int8"


def test_an_error_rate_is_limited_from_above():
    """A metric whose lower value is better has every sign reversed."""

    def error(value):
        return make_accuracy(
            metric="wer",
            value=value,
            low=value - 0.004,
            high=value + 0.004,
            better="lower",
            images=3000,
        )

    cases = make_side(agent="1", seed=1, accuracy=error(0.10)), sides(accuracy=error(0.115))[1]
    for limit, expected in ((".13", "met"), (".105", "not met"), (".112", "inconclusive")):
        with table_row(limit):
            assert int8_of(choice_of(f"accuracy<={limit}", *cases)).outcome == expected


def test_without_a_case_the_error_has_a_remedy():
    """An empty store is not the reader's fault."""
    with pytest.raises(UnavailableError, match="edgemeter run"):
        choose([], parse_requirements(""))


def false_limits(world, draws):
    """Return the share of choices that put a case on the wrong side of a limit."""
    draw, false = np.random.default_rng(1), 0
    required = parse_requirements(LIMITS)
    for _ in range(draws):
        world_drawn = drawn_world(draw, world)
        choice = choose(summarised(world_drawn.runs, "all"), required, "latency_p50_ms")
        false += any(
            requirement.outcome == ("not met" if requirement.limit.is_kept(truth) else "met")
            for candidate in choice.candidates
            for requirement, truth in zip(
                candidate.requirements, world_drawn.truths[candidate.case.key.runtime], strict=True
            )
        )
    return false / draws


def best_left_out(world, draws):
    """Return the share of choices in which the truly fastest case is not named.

    It is neither recommended nor similar.
    """
    draw, false = np.random.default_rng(2), 0
    required = parse_requirements("p50<=60ms")
    for _ in range(draws):
        truths = np.tile([P50_MS, 50.0, 300.0, 0.6], (world.cases, 1))
        truths[:, 0] *= np.exp(world.apart * draw.normal(size=world.cases))
        world_drawn = drawn_world(draw, dataclasses.replace(world, apart=0.0), truths)
        choice = choose(summarised(world_drawn.runs, "all"), required, "latency_p50_ms")
        best = min(world_drawn.truths, key=lambda runtime: world_drawn.truths[runtime][0])
        level = [
            candidate.case.key.runtime
            for candidate in (choice.recommended, *choice.similar)
            if candidate
        ]
        false += bool(level) and best not in level
    return false / draws


@pytest.mark.nightly
def test_in_worlds_of_known_truths_no_more_than_one_choice_in_twenty_is_false():
    """The truths lie a thousandth from their limits and from each other.

    The worlds last 3 to 10 days, and each day may take after the one before.
    """
    for days, kind, correlation in (
        (3, "normal", 0.0),
        (6, "skewed", 0.0),
        (10, "disturbed", 0.0),
        (10, "normal", 0.5),
    ):
        with table_row(days, kind, correlation):
            world = World(cases=4, days=days, kind=kind, correlation=correlation)
            # Seven of sixty choices at 5% are false with a probability of 2%.
            assert false_limits(world, draws=60) <= 6 / 60
            assert best_left_out(world, draws=60) <= 6 / 60


def test_models_of_other_input_sizes_are_chosen_among():
    """A detector of 300 pixels and one of 320 do the same task on the same photographs."""
    fp32, int8 = sides()
    larger = (record_conditions.Tensor(name="x", shape=(1, 320, 320, 3), dtype="uint8"),)
    choice = choice_of("ap>=.5", fp32, [replace(run, inputs=larger) for run in int8])
    assert (len(choice.candidates), choice.unlike) == (2, 0)
