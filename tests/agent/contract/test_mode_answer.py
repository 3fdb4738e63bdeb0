"""Facts about `edgemeter.agent.contract.mode_answer`: which power mode to take, and how certain that is."""

import msgspec
import pytest

from edgemeter.agent.base.figures import significant
from edgemeter.agent.contract.mode_answer import mode_answers, mode_text
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
        "cheapest mode that holds 15 fps within 60 ms: 15W (4.1 J/s); 25W is 38% faster and costs 22% more per frame; "
        "7W does not hold it (12% of frames missed)"
    )


def test_a_rate_that_is_held_by_chance_is_not_held():
    """A hundred frames without a miss leave a few in a hundred possible: it takes longer to tell."""
    steady = {"frames": 40, "effective": 40, "deadline_ms": 1000 / 15}
    answer = summary_of(runs_in("0 15W", 40.0, steady=steady), runs_in("1 25W", 29.0, steady=steady))
    assert answer.startswith(
        "no mode surely holds 15 fps: 15W possibly (0% of 120 frames missed, at most 3.1%: measure longer), 25W possibly"
    )


def test_frames_that_depend_too_much_leave_it_open():
    """Without bounds there is no certainty, however few were missed."""
    steady = {"effective": None}
    (answer,) = mode_answers([*runs_in("0 15W", 40.0, steady=steady), *runs_in("1 25W", 29.0, steady={})])
    assert [point.holds for point in answer.points] == [None, True]
    assert "cheapest mode that holds 15 fps within 60 ms: 25W" in answer.summary
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


def test_modes_whose_cost_is_not_clearly_apart_are_named_together():
    """A difference within the scatter of the runs makes none the cheapest."""
    scatter = (0.9, 1.0, 1.1)
    answer = summary_of(runs_in("0 15W", 40.0, 4.0, scatter=scatter, steady={}), runs_in("1 25W", 39.0, 4.1, scatter=scatter, steady={}))
    assert answer.startswith("cheapest modes that hold 15 fps within 60 ms, not clearly apart: 15W (4 J/s), 25W (4.1 J/s); 25W is possibly")
    assert "(95% " in answer


def test_without_energy_the_fastest_mode_that_holds_is_the_answer():
    """And nothing is said of joules."""
    runs = [msgspec.structs.replace(run, energy=None) for run in (*runs_in("0 15W", 40.0, steady={}), *runs_in("1 25W", 29.0, steady={}))]
    assert summary_of(runs) == "fastest mode that holds 15 fps within 60 ms: 25W (p50 29 ms); 25W is 38% faster than 15W"


@pytest.mark.parametrize("provenance", ["estimated", "published"])
def test_an_energy_that_was_not_measured_ranks_nothing(provenance):
    """The sentence states why there are no joules."""
    changes = {"provenance": {"latency": "measured", "energy": provenance}}
    answer = summary_of(runs_in("0 15W", 40.0, **changes), runs_in("1 25W", 29.0, **changes))
    assert answer == f"fastest: 25W (p50 29 ms); 25W is 38% faster than 15W; the energy is {provenance}, and ranks nothing"


def test_energies_of_two_sensors_are_not_ranked():
    """Nor those of runs of which some have none."""
    of_another = [msgspec.structs.replace(run, energy=make_energy(sensor="ina226")) for run in runs_in("1 25W", 29.0)]
    assert summary_of(runs_in("0 15W", 40.0), of_another).endswith("the energies are not of one sensor, and are not ranked")
    none = [msgspec.structs.replace(run, energy=None) for run in of_another]
    assert summary_of(runs_in("0 15W", 40.0), none).endswith("not every run has an energy, so none is ranked")


def test_closed_loops_have_a_fastest_mode_and_one_of_least_energy():
    """They may be one mode."""
    assert summary_of(runs_in("0 15W", 40.0, frame_mj=273.0), runs_in("1 25W", 29.0, frame_mj=333.0)) == (
        "fastest: 25W (p50 29 ms); least energy per inference: 15W (273 mJ); 25W is 38% faster and costs 22% more per inference"
    )
    assert summary_of(runs_in("0 15W", 40.0, frame_mj=400.0), runs_in("1 25W", 29.0, frame_mj=333.0)) == (
        "fastest, with the least energy per inference: 25W (p50 29 ms, 333 mJ); 25W is 38% faster than 15W and costs 17% less per inference"
    )


def test_single_runs_are_compared_without_certainty():
    """The sentence states how many runs there are, and how many give an interval."""
    assert summary_of(runs_in("0 15W", 40.0, scatter=(1.0,)), runs_in("1 25W", 29.0, scatter=(1.0,))).endswith(
        "; 1 run of each: 3 give an interval"
    )


def test_invalid_runs_do_not_count_and_suspect_ones_are_counted():
    """A mode in which the board throttled is named with its rule."""
    hot = runs_in("2 MAXN", 20.0, verdict=Verdict(state="invalid", reasons=("throttled: hot",)))
    doubted = runs_in("1 25W", 29.0, verdict=Verdict(state="suspect", reasons=("busy-machine: top",)))
    answer = summary_of(runs_in("0 15W", 40.0), doubted, hot)
    assert answer.endswith("; MAXN has no valid run (throttled); 3 runs suspect")
    assert "MAXN (" not in answer


def test_governors_and_clocks_are_settings_by_their_words():
    """Modes that share the power mode are named by the rest, and one that was left alone by that."""
    points = (None, OperatingPoint(governor="powersave"), OperatingPoint(governor="performance", cpu_max_hz=1.5e9))
    runs = [runs_in(None, 40.0 - index * 5, operating_point=point) for index, point in enumerate(points)]
    (answer,) = mode_answers(run for of_mode in runs for run in of_mode)
    assert [point.name for point in answer.points] == ["as it was", "governor powersave", "governor performance, CPU at most 1.50 GHz"]
    assert mode_text(runs_in("1 25W", 1.0, operating_point=points[1])[0]) == "25W, governor powersave"


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
    assert answer.summary == (
        f"fastest, with the least energy per output token: 25W ({fast.tokens_per_s:.3g} tokens/s, {1e3 / fast.tokens_per_j:.4g} mJ); "
        f"25W is {faster:.0f}% faster than 15W and costs {significant(cheaper, 2)}% less per output token; "
        "1 run of each: 3 give an interval"
    )
    assert 35.5 <= faster < 47.5
    assert 2.5 <= 100 * (fast.tokens_per_j / slow.tokens_per_j - 1) < 26.5


def test_the_fastest_published_mode_is_not_the_one_of_least_energy():
    """Of a model with a billion parameters MAXN is faster than 25 W by a tenth, and 25 W costs a tenth less."""
    (answer,) = mode_answers(orin_runs("Llama3.2-1B", ("7W", "15W", "25W", "MAXN"), provenance="measured"))
    assert answer.summary.startswith(
        "fastest: MAXN (51.9 tokens/s); least energy per output token: 25W (214.1 mJ); 25W is 3.88 times as fast as 7W and costs 3.4% less "
        "per output token; 25W is 46% faster than 15W and costs 2.8% less per output token; "
        "MAXN is 10% faster and costs 11% more per output token"
    )


def test_published_energies_of_modes_are_not_ranked():
    """As they were published they rank nothing, whatever they say."""
    (answer,) = mode_answers(orin_runs("SmolLM2-135M", ("15W", "25W", "MAXN"), provenance="published"))
    assert answer.summary.startswith("fastest: 25W (165 tokens/s); 25W is 44% faster than 15W; 25W is 3.6% faster than MAXN; ")
    assert "the energy is published, and ranks nothing" in answer.summary
