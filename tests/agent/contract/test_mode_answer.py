"""Facts about `edgemeter.agent.contract.mode_answer`: which power mode to take, and how certain that is."""

import msgspec
import pytest

from edgemeter.agent.base.figures import significant
from edgemeter.agent.contract.mode_answer import mode_answers
from edgemeter.agent.contract.operating_point import OperatingPoint
from edgemeter.agent.contract.record_conditions import Verdict
from edgemeter.agent.contract.record_figures import Load
from tests.fixtures.orin_modes import MODELS, ORIN_MODES, orin_runs
from tests.fixtures.record_factory import make_energy, make_environment, make_latency, make_record, make_steady

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


def summary_of(*runs):
    """Return the one answer of these runs in words."""
    (answer,) = mode_answers(run for of_mode in runs for run in of_mode)
    return answer.summary


def test_the_cheapest_mode_that_holds_the_rate_is_one_sentence():
    """With what a faster one costs, and which does not hold it."""
    slow = runs_in(
        "2 7W", 90.0, 2.0, 140.0, steady={"late": 108, "missed_ratio": 0.12},
        verdict=Verdict(state="suspect", reasons=("rate-not-held: 15 frames/s arrived",)),
    )  # fmt: skip
    cheap = runs_in("0 15W", 40.0, 4.1, 273.0, steady={})
    fast = runs_in("1 25W", 29.0, 5.0, 333.0, steady={})
    assert summary_of(slow, cheap, fast) == (
        "cheapest mode that held 15 fps within 60 ms without a miss in 3 runs of 1 min: 15W (4.1 J/s); "
        "25W is 38% faster and costs 22% more per frame; 7W does not hold it (12% of frames missed)"
    )


def test_a_rate_that_is_held_by_chance_is_not_held():
    """A hundred frames without a miss leave a few in a hundred possible: it takes longer to tell."""
    steady = {"frames": 40, "effective": 40, "deadline_ms": 1000 / 15}
    answer = summary_of(runs_in("0 15W", 40.0, steady=steady), runs_in("1 25W", 29.0, steady=steady))
    assert answer.startswith(
        "no mode surely holds 15 fps: 15W possibly (0% of 120 frames missed, at most 3.0%: measure longer), 25W possibly"
    )


def test_frames_that_depend_too_much_leave_it_open():
    """Without bounds there is no certainty, however few were missed."""
    steady = {"effective": None}
    (answer,) = mode_answers([*runs_in("0 15W", 40.0, steady=steady), *runs_in("1 25W", 29.0, steady={})])
    assert [point.holds for point in answer.points] == [None, True]
    assert answer.summary.startswith("cheapest mode that held 15 fps within 60 ms without a miss in 3 runs of 1 min: 25W")
    assert "15W possibly holds it (0% of 2,700 frames missed: measure longer)" in answer.summary


def test_a_run_that_clearly_missed_frames_is_not_averaged_away():
    """Two runs without a miss do not make up for one that throttled."""
    runs = runs_in("0 15W", 40.0, steady={"frames": 54_000, "effective": 54_000, "missed_low_ratio": 0.0, "missed_high_ratio": 1e-4})
    hot = {"late": 1000, "missed_ratio": 1000 / 54_000, "missed_low_ratio": 0.017, "missed_high_ratio": 0.02}
    runs[2] = msgspec.structs.replace(runs[2], steady=msgspec.structs.replace(runs[2].steady, **hot))
    assert "15W possibly holds it (0.62% of 162,000 frames missed: measure longer)" in summary_of(runs, runs_in("1 25W", 29.0, steady={}))


def test_queries_at_a_rate_are_held_where_none_are_left_in_line():
    """Arrivals at random have no frames to miss; a run that is invalid because its rate is too high is the answer, and no doubt."""

    def at_rate(mode, p50_ms, is_sustained, **changes):
        load = Load(samples_per_query=1, samples=64, target_per_s=15.0, is_sustained=is_sustained)
        return runs_in(mode, p50_ms, scenario="poisson", load=load, **changes)

    late = Verdict(state="invalid", reasons=("rate-not-sustained: it grew",))
    assert summary_of(at_rate("3 7W", 900.0, False, verdict=late), at_rate("0 15W", 40.0, True), at_rate("1 25W", 29.0, True)) == (
        "cheapest modes that hold 15 queries a second, not clearly apart: 15W (4 J/s), 25W (4 J/s); "
        "25W is 38% faster and costs as much per inference within 3%; 7W does not hold it (requests that wait in line)"
    )
    unclear = summary_of(at_rate("0 15W", 40.0, None), at_rate("1 25W", 29.0, None))
    assert unclear.startswith("no mode surely holds 15 queries a second: 15W possibly (a schedule too short to tell), 25W possibly")


def test_an_energy_that_was_not_measured_ranks_nothing():
    """The sentence states why there are no joules."""
    changes = {"provenance": {"latency": "measured", "energy": "estimated"}}
    answer = summary_of(runs_in("0 15W", 40.0, **changes), runs_in("1 25W", 29.0, **changes))
    assert answer == "fastest: 25W (p50 29 ms); 25W is 38% faster than 15W; the energy is estimated, and ranks nothing"


def test_energies_of_two_sensors_are_not_ranked():
    """Nor is there anything to rank where a mode has none."""
    of_another = [msgspec.structs.replace(run, energy=make_energy(sensor="ina226")) for run in runs_in("1 25W", 29.0)]
    assert summary_of(runs_in("0 15W", 40.0), of_another).endswith("the energies are not of one sensor, and are not ranked")
    none = [msgspec.structs.replace(run, energy=None) for run in of_another]
    assert summary_of(runs_in("0 15W", 40.0), none).endswith("25W has no energy, so none is ranked")


def test_closed_loops_have_a_fastest_mode_and_one_of_least_energy():
    """They may be one mode."""
    assert summary_of(runs_in("0 15W", 40.0, frame_mj=273.0), runs_in("1 25W", 29.0, frame_mj=333.0)) == (
        "fastest: 25W (p50 29 ms); least energy per inference: 15W (273 mJ); 25W is 38% faster and costs 22% more per inference"
    )
    assert summary_of(runs_in("0 15W", 40.0, frame_mj=400.0), runs_in("1 25W", 29.0, frame_mj=333.0)) == (
        "fastest, with the least energy per inference: 25W (p50 29 ms, 333 mJ); 25W is 38% faster than 15W and costs 17% less per inference"
    )


def test_one_mode_two_boards_and_two_models_are_no_sweep():
    """Only runs that differ in the mode alone are compared."""
    assert mode_answers(runs_in("0 15W", 40.0)) == []
    assert mode_answers([*runs_in("0 15W", 40.0), *runs_in("1 25W", 29.0, device="pi-2")]) == []


@pytest.mark.parametrize("model", MODELS)
def test_the_published_modes_of_an_orin_nano_super_are_repeated(model):
    """25 W gives 36 to 47% more tokens a second than 15 W and 3 to 26% more of them a joule, as its source concludes."""
    (answer,) = mode_answers(orin_runs(model, ("15W", "25W"), provenance="measured"))
    slow, fast = ORIN_MODES[model, "15W"], ORIN_MODES[model, "25W"]
    faster, cheaper = 100 * (fast.tokens_per_s / slow.tokens_per_s - 1), 100 * (1 - slow.tokens_per_j / fast.tokens_per_j)
    assert [(point.speed, point.energy_mj) for point in answer.points] == [
        (row.tokens_per_s, pytest.approx(1e3 / row.tokens_per_j, rel=1e-3)) for row in (slow, fast)
    ]
    less = "as much" if cheaper < 2.9 else f"{significant(cheaper, 2)}% less"
    assert answer.summary.startswith("possibly fastest")
    assert answer.summary.endswith(
        f"; 25W is possibly {faster:.0f}% faster than 15W and costs possibly {less} per output token; 1 run of each: 3 give an interval"
    )
    assert 35.5 <= faster < 47.5
    assert 2.5 <= 100 * (fast.tokens_per_j / slow.tokens_per_j - 1) < 26.5


def frames_of(missed, frames=54_000, **changes):
    """Return an hour's frames of which so many were missed one by one, each beside none."""
    ratio = missed / frames
    alone = {
        "frames": frames,
        "effective": frames,
        "late": missed,
        "missed_ratio": ratio,
        "bursts": missed,
        "longest_burst": min(missed, 1),
    }
    return make_steady(**{**alone, "longest_row": min(missed, 1), "missed_low_ratio": 0.0, "missed_high_ratio": ratio + 7e-5, **changes})


def with_frames(mode, each, p50_ms=40.0, power_w=4.0):
    """Return a run for each of these frames."""
    runs = runs_in(mode, p50_ms, power_w, scatter=SCATTER[: len(each)], scenario="steady")
    return [msgspec.structs.replace(run, steady=steady) for run, steady in zip(runs, each, strict=True)]


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
    differ = with_frames("0 15W", [frames_of(20), frames_of(90), frames_of(50)])
    assert " that held 15 fps within 60 ms with less than 1% missed in 3 runs of 1 h: 15W" in summary_of(
        differ, with_frames("1 25W", [frames_of(0)] * 3, 29.0, 5.0)
    )


def test_few_runs_make_no_mode_surely_the_best():
    """Below three runs nothing tells their scatter: modes within what matters are not apart, others only possibly."""
    near = [runs_in(mode, p50_ms, power_w, frame_mj, scatter=(0.8, 1.2), steady={})
            for mode, p50_ms, power_w, frame_mj in (("0 15W", 40.0, 4.10, 273.0), ("1 25W", 39.9, 4.11, 273.5))]  # fmt: skip
    assert summary_of(*near) == (
        "cheapest modes that held 15 fps within 60 ms without a miss in 2 runs of 1 min, not clearly apart: 15W (4.1 J/s), 25W (4.11 J/s); "
        "25W is possibly as fast and costs possibly as much per frame; 2 runs of each: 3 give an interval"
    )
    far = [runs_in("0 15W", 40.0, 4.1, 273.0, scatter=(1.0,)), runs_in("1 25W", 29.0, 5.0, 333.0, scatter=(1.0,))]
    assert summary_of(*far) == (
        "possibly fastest: 25W (p50 29 ms); possibly least energy per inference: 15W (273 mJ); "
        "25W is possibly 38% faster and costs possibly 22% more per inference; 1 run of each: 3 give an interval"
    )


@pytest.mark.parametrize("energy_mj", [-273.0, 0.0])
def test_an_energy_that_is_not_above_zero_ranks_nothing_and_is_named(energy_mj):
    """A shunt that is connected the wrong way round, in all runs of a mode or in one of them."""
    reason = "an energy of 15W is not above 0 mJ (is its sensor reversed?), so none is ranked"
    for count in (3, 1):
        runs = runs_in("0 15W", 40.0, 4.1, 273.0, steady={})
        wrong = make_energy(gross_mj=energy_mj, mean_power_w=4.1)
        runs[:count] = [msgspec.structs.replace(run, energy=wrong) for run in runs[:count]]
        answer = summary_of(runs, runs_in("1 25W", 29.0, steady={}))
        head = "; fastest mode that held 15 fps within 60 ms without a miss in 3 runs of 1 min: 25W (p50 29 ms)"
        assert answer.startswith(reason + head)
    no_power = runs_in("0 15W", 40.0, -4.1, 273.0, steady={})
    assert summary_of(no_power, runs_in("1 25W", 29.0, steady={})).startswith(reason)


def test_runs_that_were_left_out_and_suspect_ones_have_their_mode_and_rule():
    """The answer is of the runs that count: which do not is part of it."""
    hot = runs_in("0 15W", 40.0, scatter=(1.0,), verdict=Verdict(state="invalid", reasons=("throttled: hot",)))
    doubted = runs_in("1 25W", 29.0, verdict=Verdict(state="suspect", reasons=("busy-machine: top",)))
    answer = summary_of([*runs_in("0 15W", 40.0), *hot], doubted)
    assert answer.endswith("; 1 run of 15W left out (throttled); 3 runs of 25W suspect (busy-machine)")


def test_clocks_that_differ_in_the_fourth_digit_are_two_settings():
    """Memory at 2.131 and 2.133 GHz: runs of both are not averaged."""
    points = [OperatingPoint(memory_max_hz=hz) for hz in (2.131e9, 2.133e9, 1.5e9)]
    (answer,) = mode_answers(run for point in points for run in runs_in("0 15W", 40.0, operating_point=point))
    assert [(point.name, point.runs) for point in answer.points] == [
        (f"memory at most {clock} GHz", 3) for clock in ("2.131", "2.133", "1.50")
    ]


def seconds_at(mode, p50_ms, power_w, frame_mj, missed, **changes):
    """Return three runs of 10.2 s, 153 frames each, of which the first misses some, and the record's other changes."""
    each = [frames_of(count, 153, **(changes if count else {})) for count in (missed, 0, 0)]
    runs = runs_in(mode, p50_ms, power_w, frame_mj, scenario="steady")
    return [msgspec.structs.replace(run, steady=steady) for run, steady in zip(runs, each, strict=True)]


def test_a_cheaper_mode_that_possibly_holds_the_rate_is_named_with_its_price():
    """One frame of 459 is 0.22%, at most 1.2% (Clopper and Pearson): that is no reason to pass 4.1 W over for 5 W in silence."""
    cheap, middle, dear = (
        seconds_at(*args) for args in (("0 15W", 30.0, 4.1, 273.3, 1), ("1 25W", 20.0, 5.0, 333.3, 0), ("2 MAXN", 15.0, 7.7, 513.3, 1))
    )
    possibly = "possibly holds it (0.22% of 459 frames missed, at most 1.2%: measure longer)"
    assert summary_of(cheap, middle, dear) == (
        "cheapest mode that held 15 fps within 60 ms without a miss in 3 runs of 10.2 s: 25W (5 J/s); "
        f"15W would cost less (4.1 J/s) and {possibly}; MAXN {possibly}"
    )


def test_misses_by_edgemeters_own_wake_ups_are_named_and_do_not_rule_a_mode_out():
    """Its runs are suspect for that: in one of three a frame was late, or 31 of 153 were."""
    doubted = Verdict(state="suspect", reasons=("schedule-not-kept: Edgemeter woke up to 30.4 ms late",))
    other = seconds_at("1 25W", 20.0, 5.0, 333.3, 0)
    runs = seconds_at("0 15W", 30.0, 4.1, 273.3, 1, woke_late=1)
    runs[0] = msgspec.structs.replace(runs[0], verdict=doubted)
    assert (
        "; 15W would cost less (4.1 J/s) and possibly holds it "
        "(0.22% of 459 frames missed, at most 1.2%; Edgemeter woke up late: measure again); "
    ) in summary_of(runs, other)
    for woke_late, claim in (
        (31, "15W would cost less (4.1 J/s) and possibly holds it (20"),
        (3, "15W does not hold it (20% of frames missed; "),
    ):
        each = [frames_of(31, 153, woke_late=woke_late)] * 3
        runs = [msgspec.structs.replace(run, steady=steady) for run, steady in zip(runs, each, strict=True)]
        answer = summary_of(runs, other)
        assert claim in answer
        assert "; Edgemeter woke up late" in answer


def test_a_run_without_an_energy_leaves_the_ranking_to_the_others():
    """Two of three runs are ranked as two are, which is said; a mode without any is the reason, which comes first."""
    cheap, other = seconds_at("0 15W", 30.0, 4.1, 273.3, 0), seconds_at("1 25W", 20.0, 5.0, 333.3, 0)
    cheap[1] = msgspec.structs.replace(cheap[1], energy=None, energy_reason="no reading for 0.5 s")
    assert summary_of(cheap, other) == (
        "possibly cheapest mode that held 15 fps within 60 ms without a miss in 3 runs of 10.2 s: 15W (4.1 J/s); "
        "25W is 50% faster and costs possibly 22% more per frame; 2 of 3 runs of 15W with an energy: 3 give an interval"
    )
