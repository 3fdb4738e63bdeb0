"""Facts about `edgemeter.agent.cli.run_table`: what is printed of runs, as a whole, and what the table never does."""

import io
import re

import msgspec
import pytest
from rich.console import Console

from edgemeter.agent.cli import run_session, run_table
from edgemeter.agent.contract.figures import figure
from edgemeter.agent.contract.record_conditions import Verdict
from edgemeter.agent.contract.record_generation import GenerationEnergy, TokenEnergy
from tests.fixtures.camera_hour import camera_hour
from tests.fixtures.record_factory import (
    make_energy,
    make_environment,
    make_generation,
    make_latency,
    make_model,
    make_record,
    make_steady,
)
from tests.fixtures.snapshot import same_as_snapshot


def printed(*runs, width=140, why=False):
    """Return what is printed of the runs."""
    out = io.StringIO()
    run_table.print_runs(runs, Console(file=out, width=width), why=why)
    return "".join(f"{line.rstrip()}\n" for line in out.getvalue().splitlines())


def repeats(*p50s_ms, **changes):
    """Return runs of one case with these latencies."""
    return [make_record(id=f"{index:032x}", latency=make_latency(p50_ms=p50_ms), **changes) for index, p50_ms in enumerate(p50s_ms, 1)]


def alone(**changes):
    """Return one run."""
    return repeats(2.0, **changes)


def judged(runs, *reasons):
    """Return the runs with these reasons to doubt them."""
    verdicts = [Verdict(state="suspect" if of_run else "valid", reasons=of_run) for of_run in reasons]
    return [msgspec.structs.replace(run, verdict=verdict) for run, verdict in zip(runs, verdicts, strict=True)]


def power_modes():
    """Return three runs in each of two modes."""
    modes = (("0 15W", 4.0), ("1 25W", 2.0))
    return [run for mode, p50_ms in modes for run in repeats(p50_ms, p50_ms, p50_ms, environment=make_environment(power_mode=mode))]


def generated(**energy):
    """Return a run that generated text."""
    of_tokens = GenerationEnergy(
        sensor="bench",
        scope="board-input",
        output_token_gross_mj=5.0,
        prefill_reason="too short",
        decode_token=TokenEnergy(gross_mj=12.5, gross_u_mj=0.5),
    )
    generation = make_generation(energy=of_tokens)
    return alone(generation=generation, accuracy=None, accuracy_reason="none", energy=make_energy(**energy))


def missing_frames():
    """Return three runs with a deadline, of which the one in the middle missed 14 of 153 frames."""
    steady = [make_steady(frames=153, late=late, missed_ratio=late / 153, effective=153) for late in (0, 14, 0)]
    return [make_record(id=name * 32, steady=part) for name, part in zip("abc", steady, strict=True)]


THREE = repeats(2.0, 2.1, 2.2)
TOO_FEW = [make_record(id="4" * 32, latency=make_latency(p50_ms=None))]
DOUBTED = judged(THREE, ("busy-machine: 30%", "hot: 90 °C"), ("busy-machine: 40%",), ())
INVALID = [*THREE, *repeats(9.0, verdict=Verdict(state="invalid", reasons=("accuracy-gate: 0.1",)))]
UNSURE = {
    "gross_u_mj": None,
    "net_u_mj": None,
    "scope": "wall-ac",
    "excludes": (),
    "interval_reason": "the sensor states no gain uncertainty",
}
CALM = make_steady(late=0, missed_ratio=0.0, missed_low_ratio=0.0, missed_high_ratio=0.0041, effective=900, bursts=0)
PRINTED = {
    "one run": (alone(), {}),
    "two runs": (repeats(2.0, 2.2), {}),
    "three runs, 80 columns": (THREE, {"width": 80}),
    "too few queries": (TOO_FEW, {}),
    "an invalid run is left out of the median": (INVALID, {}),
    "all are invalid": (INVALID[3:], {}),
    "doubted": (DOUBTED, {}),
    "doubted, with the reasons": (DOUBTED, {"why": True}),
    "two cases": ([*THREE, *repeats(4.0, 4.1, 4.2, model=make_model(name="other"))], {}),
    "generated text": (generated(), {"width": 200}),
    "generated text of a server": (generated(window_ms=8000.0, between_ms=2000.0), {"width": 80}),
    "a replayed energy": (alone(energy=make_energy(sensor="replay:demo")), {}),
    "an estimated energy": (alone(energy=make_energy(sensor="estimate")), {}),
    "an energy that leaves something out": (alone(energy=make_energy(excludes=("power-supply loss",))), {}),
    "an energy without an interval": (alone(energy=make_energy(**UNSURE)), {}),
    "power modes": (power_modes(), {}),
    "an hour of a camera": ([camera_hour()], {}),
    "no frame missed": (alone(steady=CALM, energy=None, energy_reason="no sensor"), {}),
    "frames missed in one of three runs": (missing_frames(), {}),
}


def test_what_is_printed_of_runs():
    """Medians with their intervals, verdicts with their rules, tokens, energies, power modes and frames."""
    blocks = [f"== {title}\n{printed(*runs, **settings)}" for title, (runs, settings) in PRINTED.items()]
    same_as_snapshot("run-table", re.sub(r"[0-9a-f]{8}-[0-9a-f-]{27}", "RUN", "\n".join(blocks)))


def test_no_figure_and_no_verdict_is_cut_on_a_narrow_terminal():
    """The model's name gives way, the numbers never do."""
    run = make_record(model=make_model(name="coco_ssd_mobilenet_v1_1.0_quant_2018_06_29"), energy=None, energy_reason="no sensor")
    text = printed(run, width=72)
    cells = [f"{run.latency.p50_ms:g}", f"{run.latency.p90_ms:g}", f"{run.accuracy.value:.4f} AP", run.verdict.state, "p50 ms", "verdict"]
    assert [cell for cell in cells if cell not in text] == []


def test_the_document_has_the_answer_of_power_modes():
    """A point of each."""
    document = run_session.session_document(run_session.SessionOutcome(power_modes(), [], None))
    (answer,) = msgspec.json.decode(document)["answer"]
    assert [point["name"] for point in answer["points"]] == ["15W", "25W"]


def test_joules_a_second_are_as_uncertain_as_those_of_a_frame_and_have_no_more_digits():
    """269 mJ of 15 frames a second are 4.036 W; with 124.9 mJ, 46.4% of them, 1.874 W: more than one decimal would be made up."""
    energy = make_energy(gross_mj=269.0435, gross_u_mj=124.9324, mean_power_w=4.035653)
    run = make_record(steady=make_steady(), energy=energy)
    low, high = figure("steady_power_w").bounds(run)
    assert (low, high) == (pytest.approx(2.1617, abs=1e-4), pytest.approx(5.9096, abs=1e-4))
    assert "4.0 ±1.9" in printed(run)
