"""Facts about `edgemeter.agent.cli.run_table`."""

import io

import pytest
from rich.console import Console

from edgemeter.agent.base import figures
from edgemeter.agent.cli import run_table
from edgemeter.agent.contract.record_conditions import Verdict
from edgemeter.agent.contract.record_figures import Stretch, Windows
from edgemeter.agent.contract.record_generation import GenerationEnergy, TokenEnergy
from tests.fixtures.record_factory import make_energy, make_generation, make_latency, make_model, make_record


def printed(*runs, width=80):
    """Return what is printed of the runs."""
    out = io.StringIO()
    run_table.print_runs(runs, Console(file=out, width=width))
    return out.getvalue()


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
    heading, cells = (line.split("  ") for line in printed(run, width=width).splitlines()[1:4:2])
    assert {"Peak MB", "per s"} - {one.strip() for one in heading} == missing
    assert {"62.5 ±1.2", "not resolvable", run.verdict.state} <= {one.strip() for one in cells}


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
    for shown in ("512+11", "TTFT ms", "100", "tokens/s", "62.5 ±1.2", run.verdict.state):
        assert shown in text
    assert ("TPOT ms" in text) == (width == 200)
    assert "none a prompt token (too short), 12.5 ±0.5 mJ gross a token decoded" in text
    assert "TTFT" not in printed(make_record(), width=width)


def test_columns_that_nobody_fills_are_left_out():
    """No sensor and no photographs: no columns of dashes, and one line that says why."""
    text = printed(make_record(energy=None, energy_reason="no sensor", accuracy=None, accuracy_reason="no photographs"))
    assert "mJ" not in text
    assert "no energy: no sensor" in text
    assert "no accuracy: no photographs" in text


def test_a_refused_percentile_states_once_what_it_needs():
    """Repeats of one case that differ in their count of queries are one note."""
    runs = [make_record(latency=make_latency(count=count, refused={"p99": 662})) for count in (130, 131)]
    assert printed(*runs, width=200).count("not stated: p99 (needs 662 queries) of tiny-detector") == 1


def test_figures_are_rounded_by_significant_digits():
    """Never to an integer where that loses something, never in exponent form."""
    for value, text in [(None, "-"), (0, "0"), (0.21463, "0.2146"), (1234567.0, "1235000"), (12.0, "12"), (1.23456e-5, "0.00001235")]:
        assert figures.plain_digits(value) == text, f"{value!r}"


def test_an_energy_that_was_not_measured_is_marked():
    """Beside the figure itself."""
    for energy, shown in [
        (make_energy(), "62.5 ±1.2 "),
        (make_energy(sensor="replay:demo"), "62.5 ±1.2 (replayed)"),
        (make_energy(is_modelled=True), "62.5 (modelled)"),
        (make_energy(sensor="estimate"), "62.5 (estimated)"),
    ]:
        assert shown in printed(make_record(energy=energy), width=200), f"{energy!r}"


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
    runs = [make_record(verdict=Verdict(state="suspect", reasons=one)) for one in reasons]
    lines = [line for line in printed(*runs, width=200).splitlines() if line.startswith("suspect: ")]
    assert [line.partition(" on ")[2].partition(": ")[2] for line in lines] == [
        "busy-machine: 30% (and in 2 more of its runs)",
        "hot: 90 °C",
    ]
