"""Facts about `edgemeter.agent.cli.run_table`."""

import io

import msgspec
import pytest
from rich.console import Console

from edgemeter.agent.cli import run_session, run_table
from edgemeter.agent.contract.record_conditions import Verdict
from edgemeter.agent.contract.record_figures import CurvePoint, Load, Stage, Stretch, Sustained, Windows
from edgemeter.agent.contract.record_generation import GenerationEnergy, TokenEnergy
from edgemeter.agent.ledger.run_history import short_id
from tests.fixtures.record_factory import (
    make_accuracy,
    make_energy,
    make_environment,
    make_generation,
    make_latency,
    make_model,
    make_record,
)

EVIDENCE = "--why shows the evidence, later `edgemeter runs show ID`; `edgemeter config rules` says what to do\n"


def printed(*runs, width=80, why=False):
    """Return what is printed of the runs."""
    out = io.StringIO()
    run_table.print_runs(runs, Console(file=out, width=width), why=why)
    return out.getvalue()


def repeats(*p50s_ms, **changes):
    """Return runs of one case with these latencies."""
    return [make_record(id=f"{index:032x}", latency=make_latency(p50_ms=p50_ms), **changes) for index, p50_ms in enumerate(p50s_ms, 1)]


def test_the_first_line_of_repeats_is_the_median_with_its_interval_and_the_verdict():
    """Three runs and more have the interval over runs, two their range, one the bounds within it; the table has one row."""
    for runs, words in (
        (repeats(2.0, 2.1, 2.2), "p50 2.1 ms (95% 1.86 to 2.36 over 3 runs)"),
        (repeats(2.0, 2.2), "p50 2.1 ms (2.00 to 2.20 in 2 runs, 3 give an interval)"),
        (
            [make_record(latency=make_latency(p50_ms=2.0, p50_low_ms=1.9, p50_high_ms=2.3))],
            "p50 2 ms (one run; 95% 1.90 to 2.30 within it)",
        ),
        (repeats(None), "too few queries for a median"),
    ):
        first, *lines = printed(*runs).splitlines()
        assert first.startswith("tiny-detector fp32 ")
        assert words in first
        assert first.endswith(f": {runs[0].verdict.state}")
        assert len([line for line in lines if line.rstrip().endswith(" valid")]) == 1


def test_invalid_runs_are_left_out_of_the_median_unless_all_are():
    """A run that failed its gate moves no figure, and the line below says by which rule it does not count."""
    runs = repeats(2.0, 2.1, 2.2, 9.0)
    runs[-1] = msgspec.structs.replace(runs[-1], verdict=Verdict(state="invalid", reasons=("accuracy-gate: 0.1",)))
    text = printed(*runs)
    assert "over 3 runs)" in text.splitlines()[0]
    assert f"\ninvalid: 1 of 4 runs: accuracy-gate; {EVIDENCE}" in text
    assert printed(runs[-1]).splitlines()[0].endswith(": invalid")


def test_cases_have_a_row_each_and_runs_a_row_each_where_the_reasons_are_asked_for():
    """Two models of three runs: two rows, with `why` six."""
    runs = [*repeats(2.0, 2.1, 2.2), *repeats(4.0, 4.1, 4.2, model=make_model(name="other"))]
    for why, rows in ((False, 2), (True, 6)):
        text = printed(*runs, why=why)
        assert "2 cases, 6 runs" in text.splitlines()[0]
        assert len([line for line in text.splitlines() if line.rstrip().endswith(" valid")]) == rows


def test_cases_that_differ_in_their_options_alone_show_them():
    """By those in which they differ, of a file its name; repeats of one case, and cases of other names, need none."""
    runtime = make_record().runtime
    options = ({"kind": "a", "width": "4"}, {"kind": "a", "width": "8", "weights": "/data/net.pt"}, {"kind": "a"})
    runs = [make_record(case=str(index), runtime=msgspec.structs.replace(runtime, options=of)) for index, of in enumerate(options)]
    rows = [line for line in printed(*runs, width=200).splitlines() if line.startswith("tiny-detector")]
    assert ["width=4" in rows[0], "width=8 weights=net.pt" in rows[1], "width" in rows[2], "kind" in "".join(rows)] == [
        True,
        True,
        False,
        False,
    ]
    assert "width" not in printed(*runs[:1], *repeats(2.0, runtime=runs[1].runtime, model=make_model(name="another")), width=200)


def test_reasons_are_one_line_until_they_are_asked_for():
    """How many runs by which rules; the evidence stands with `why` only."""
    reasons = [("busy-machine: 30%", "hot: 90 °C"), ("busy-machine: 40%",), ()]
    runs = [
        msgspec.structs.replace(run, verdict=Verdict(state="suspect" if reason else "valid", reasons=reason))
        for run, reason in zip(repeats(2.0, 2.1, 2.2), reasons, strict=True)
    ]
    assert f"\nsuspect: 2 of 3 runs: busy-machine, hot in 1; {EVIDENCE}" in printed(*runs, width=200)
    assert "30%" not in printed(*runs)
    explained = printed(*runs, width=200, why=True)
    assert "busy-machine: 30%" in explained
    assert "\n`edgemeter config rules` says what to do\n" in explained
    assert all(f"\n{short_id(run.id)} " in explained for run in runs)
    assert f"\nsuspect: busy-machine, hot; {EVIDENCE}" in printed(runs[0], width=200)


def test_no_figure_and_no_verdict_is_cut_on_a_narrow_terminal():
    """The model's name gives way, the numbers never do."""
    for width in [72, 80, 200]:
        run = make_record(model=make_model(name="coco_ssd_mobilenet_v1_1.0_quant_2018_06_29"), energy=None, energy_reason="no sensor")
        text = printed(run, width=width)
        cells = [
            f"{run.latency.p50_ms:g}",
            f"{run.latency.p90_ms:g}",
            f"{run.accuracy.value:.4f} AP",
            run.verdict.state,
            "p50 ms",
            "verdict",
        ]
        assert [cell for cell in cells if cell not in text] == [], f"{width!r}"


@pytest.mark.parametrize(("width", "missing"), [(80, {"Peak MB", "per s"}), (200, set())])
def test_an_energy_and_a_verdict_are_shown_before_what_can_be_done_without(width, missing):
    """On a narrow terminal memory and rate give way; the record holds them."""
    run = make_record(energy=make_energy(net_mj=None, net_state="not_resolvable"))
    other = msgspec.structs.replace(run, model=make_model(name="other"))
    heading, cells = (line.split("  ") for line in printed(run, other, width=width).splitlines()[1:4:2])
    assert {"Peak MB", "per s"} - {cell.strip() for cell in heading} == missing
    assert {"62.5 ±1.2", "not resolvable", run.verdict.state} <= {cell.strip() for cell in cells}


@pytest.mark.parametrize("width", [80, 200])
def test_a_language_model_is_shown_by_its_tokens(width):
    """TTFT, TPOT and both lengths; below, the energy by the token or why a part has none."""
    energy = GenerationEnergy(
        sensor="bench",
        scope="board-input",
        output_token_gross_mj=5.0,
        prefill_reason="too short",
        decode_token=TokenEnergy(gross_mj=12.5, gross_u_mj=0.5),
    )
    run = make_record(generation=make_generation(energy=energy), accuracy=None, accuracy_reason="none")
    text = printed(run, width=width)
    for text_part in ("512+11", "TTFT ms", "100", "tokens/s", "62.5 ±1.2", run.verdict.state):
        assert text_part in text
    assert text.startswith("tiny-detector 512+11 fp32 onnx 2T on pi-1: TTFT 100 ms (one run")
    assert "TPOT ms" in text
    assert "none a prompt token (too short), 12.5 ±0.5 mJ gross a token decoded" in text
    assert "TTFT" not in printed(make_record(), width=width)
    served = msgspec.structs.replace(run, energy=make_energy(window_ms=8000.0, between_ms=2000.0))
    assert "without the 20.0% of the time between requests" in printed(served, width=400)
    assert "between requests" not in text


def test_columns_that_nobody_fills_are_left_out():
    """No sensor and no photographs: no columns of dashes, and one line that says why."""
    text = printed(make_record(energy=None, energy_reason="no sensor", accuracy=None, accuracy_reason="no photographs"))
    assert "mJ" not in text
    assert "no energy: no sensor" in text
    assert "no accuracy: no photographs" in text


def test_a_refused_percentile_states_once_what_it_needs():
    """Repeats of one case that differ in their count of queries are one note."""
    runs = [make_record(latency=make_latency(count=count, refused={"p99": 662})) for count in (130, 131)]
    assert printed(*runs, width=200, why=True).count("not stated: p99 (needs 662 queries) of tiny-detector") == 1


def test_an_energy_that_was_not_measured_is_marked():
    """Beside the figure itself."""
    for energy, cell in [
        (make_energy(), "62.5 ±1.2 "),
        (make_energy(sensor="replay:demo"), "62.5 ±1.2 (replayed)"),
        (make_energy(sensor="estimate"), "62.5 (estimated)"),
    ]:
        assert cell in printed(make_record(energy=energy), width=200), f"{energy!r}"


def test_a_run_that_idled_too_short_for_its_sensor_is_not_called_one_without_idle():
    """A mode whose idle stretches hold too few readings; without idle there is no such line."""
    energy = make_energy(net_mj=None, net_u_mj=None, net_state="no_idle", idle_before_w=None, idle_after_w=None)
    stretch = Stretch(start_ns=-10, end_ns=-1)
    idled = make_record(energy=energy, windows=Windows(timed_start_ns=0, timed_end_ns=10, idle_before=stretch))
    assert "no idle power" in printed(idled, width=200)
    assert "its idle stretches do not give ina219 an idle power: use a longer mode" in printed(idled, width=200)
    assert "idle stretches" not in printed(make_record(energy=energy, windows=Windows(timed_start_ns=0, timed_end_ns=10)), width=200)


def test_a_rule_that_repeats_violate_is_one_line_with_their_count():
    """The evidence of the first; another rule has a line of its own."""
    reasons = [("busy-machine: 30%", "hot: 90 °C"), ("busy-machine: 40%",), ("busy-machine: 50%",)]
    runs = [make_record(verdict=Verdict(state="suspect", reasons=reason)) for reason in reasons]
    lines = [line for line in printed(*runs, width=200, why=True).splitlines() if line.startswith("suspect: ")]
    assert [line.partition(" on ")[2].partition(": ")[2] for line in lines] == [
        "busy-machine: 30% (and in 2 more of its runs)",
        "hot: 90 °C",
    ]


def noted(**changes):
    """Return what is printed of a run on a wide terminal."""
    return printed(make_record(**changes), width=200)


LOAD = Load(
    samples_per_query=1,
    samples=64,
    target_per_s=20.0,
    achieved_per_s=19.5,
    utilisation_ratio=0.36,
    is_sustained=True,
    queueing=Stage(count=64, mean_ms=5.0, p50_ms=1.75, p90_ms=9.0),
)


def test_a_rate_that_was_sustained_states_how_long_queries_waited():
    """Utilisation and queueing stand below the table."""
    assert "sustained: 20 queries a second of tiny-detector: busy 36% of the time, they waited 1.75 ms (p50)" in noted(load=LOAD)


def test_a_rate_that_was_not_sustained_is_stated_plainly():
    """The latencies of an overloaded queue grow with the time that it is watched: the note states that."""
    text = noted(load=msgspec.structs.replace(LOAD, is_sustained=False, utilisation_ratio=1.8, unserved=12))
    assert "not sustained: 20 queries a second of tiny-detector: busy 180% of the time, 12 never served" in text
    assert "offer a lower rate" in text


def test_a_server_s_users_are_counted_and_its_queue_is_not_guessed():
    """What waits inside a server is not seen, nor how busy it was: the note says how many were there at once."""
    text = noted(load=msgspec.structs.replace(LOAD, utilisation_ratio=None, in_flight_max=7))
    assert "sustained: 20 queries a second of tiny-detector: up to 7 at once" in text
    assert "waited" not in text
    drained = msgspec.structs.replace(LOAD, utilisation_ratio=None, in_flight_max=7, tail_ms=5000.0)
    assert "up to 7 at once; rates include 5 s after the last arrival" in noted(load=drained)
    assert "not known whether sustained: 20 queries" in noted(load=msgspec.structs.replace(drained, is_sustained=None))
    # Nothing was offered at a rate.
    assert "sustained" not in noted(load=Load(samples_per_query=1, samples=64))


def test_a_long_run_states_whether_it_held():
    """Half an hour at the level of the first minute, or the moment when it was left."""
    curve = Sustained(interval_s=10.0, points=(CurvePoint(t_s=0.0, queries=9, p50_ms=5.0),) * 180, level_p50_ms=5.0)
    assert "tiny-detector held its first minute's 5 ms for 30 min" in noted(sustained=curve)
    hot = msgspec.structs.replace(curve, throttled_after_s=420.0, evidence="from 420 s on p50 is above 5.25 ms")
    assert "tiny-detector throttled after 420 s: from 420 s on p50 is above 5.25 ms" in noted(sustained=hot)
    assert "too short for a level" in noted(sustained=msgspec.structs.replace(curve, level_p50_ms=None))


def test_energies_of_several_sensors_stand_beside_each_other():
    """Below the table: the other meter's figure and its share of the power, and why a third gave none."""
    other = make_energy(sensor="pmic", scope="soc-rails", gross_mj=50.0, mean_power_w=4.0)
    text = noted(other_energies=(other,), other_energy_reasons=("plug: too slow",))
    assert "also 50 ±1.2 mJ gross by pmic (soc-rails), 0.80 of what ina219 (board-input) sees" in text
    assert "no energy from plug: too slow" in text


def test_a_net_energy_that_is_lost_names_what_would_resolve_it():
    """How long, or that no length would do."""
    lost = make_energy(net_mj=None, net_state="not_resolvable", resolving_window_s=340.0)
    assert "idle and load of 340 s each would resolve it" in noted(energy=lost)
    assert "ina219 does not resolve it within a day" in noted(energy=msgspec.structs.replace(lost, resolving_window_s=None))


def test_an_energy_states_what_it_includes_and_its_uncertainty():
    """Uncertainty beside the figure, scope and what is left out below the table; what nobody knows is a question mark and no zero."""
    text = noted(energy=make_energy(excludes=("power-supply loss",)))
    assert "62.5 ±1.2" in text
    assert "30 ±2" in text
    assert "energy by ina219, board-input: leaves out power-supply loss" in text
    why = "the sensor states no gain uncertainty"
    unsure = noted(energy=make_energy(gross_u_mj=None, net_u_mj=None, scope="wall-ac", excludes=(), interval_reason=why))
    assert "62.5 ±?" in unsure
    assert f"energy by ina219, wall-ac: leaves out nothing; no interval (±?): {why}" in unsure


def test_an_accuracy_states_what_its_bounds_take_as_independent():
    """In the words of the record."""
    accuracy = make_accuracy(value=0.372, low=0.341, high=0.4, interval="95%, Wilson; images taken as independent")
    assert "AP 0.3720 (0.3410 to 0.4000; images taken as independent)" in printed(make_record(accuracy=accuracy), width=200)


def test_the_accuracies_of_a_suite_are_one_line():
    """Each score once, with the models that have it, told apart by their precision."""
    scores = [make_accuracy(value=value, low=value - 0.1, high=value + 0.1) for value in (0.5, 0.6, 0.6)]
    runs = [make_record(case=f"{number:012x}", model=make_model(name=f"m{number}"), accuracy=score) for number, score in enumerate(scores)]
    (line,) = [line for line in printed(*runs, width=300).splitlines() if line.startswith("accuracy")]
    assert (line.count("AP 0.5"), line.count("AP 0.6"), [f"m{number} fp32" in line for number in range(3)]) == (1, 1, [True] * 3)


def test_queries_that_depend_are_named_with_what_they_are_worth():
    """One line for all repeats of a case: the effective queries of each percentile, and those without bounds."""
    latency = make_latency(early_stopping_reason="they depend", effective={"p50": 300, "p99_9": 20}, unbounded={"p99_9": 90000}, count=1024)
    text = printed(make_record(id="1" * 32, latency=latency), make_record(id="2" * 32, latency=latency), width=250, why=True)
    assert text.count("1,024 queries of tiny-detector depend on each other, worth fewer") == 1
    assert "300 for p50, 20 for p99.9; no bounds of p99.9 (time about 90,000 queries)" in text


def test_power_modes_are_named_in_their_rows_and_answered_in_a_sentence():
    """And the sentence stands below the table."""
    modes = [
        run
        for mode, p50_ms in (("0 15W", 4.0), ("1 25W", 2.0))
        for run in repeats(p50_ms, p50_ms, p50_ms, environment=make_environment(power_mode=mode))
    ]
    text = printed(*modes, width=120)
    assert [line.split()[4] for line in text.splitlines() if line.startswith("tiny-detector")] == ["15W", "25W"]
    assert "\nfastest: 25W (p50 2 ms); least energy per inference, not clearly apart: 15W (62.5 mJ), 25W (62.5 mJ); " in text
    assert "fastest" not in printed(*modes[:3])
    (answer,) = msgspec.json.decode(run_session.session_document(run_session.SessionOutcome(modes, [], None)))["answer"]
    assert [point["name"] for point in answer["points"]] == ["15W", "25W"]
