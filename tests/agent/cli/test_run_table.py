"""Facts about `edgemeter.agent.cli.run_table`."""

import io

import msgspec
import pytest
from rich.console import Console

from edgemeter.agent.cli import run_session, run_table
from edgemeter.agent.contract.record_conditions import Verdict
from edgemeter.agent.contract.record_generation import GenerationEnergy, TokenEnergy
from tests.fixtures.record_factory import (
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


def test_an_energy_that_was_not_measured_is_marked():
    """Beside the figure itself."""
    for energy, cell in [
        (make_energy(), "62.5 ±1.2 "),
        (make_energy(sensor="replay:demo"), "62.5 ±1.2 (replayed)"),
        (make_energy(sensor="estimate"), "62.5 (estimated)"),
    ]:
        assert cell in printed(make_record(energy=energy), width=200), f"{energy!r}"


def noted(**changes):
    """Return what is printed of a run on a wide terminal."""
    return printed(make_record(**changes), width=200)


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
