"""Facts about `edgemeter.agent.cli.steady_block`."""

import io

import pytest
from rich.console import Console

from edgemeter.agent.cli import run_table
from edgemeter.agent.contract.figures import figure
from tests.fixtures.camera_hour import camera_hour
from tests.fixtures.record_factory import make_energy, make_record, make_steady

BLOCK = """tiny-detector at 15 frames a second, deadline 60 ms, 1 frame may wait:
  frames: 54,000 in 1 h; missed 5,340, 9.9% (95% 4.0% to 18%; as 310 independent frames): 5,000 dropped, 340 late, at most 23 in a row
  first miss: after 30 min 4 s; within 20 s of the beginning of throttling (30 min)
  answers: p50 45 ms, at most 128 ms; jitter p90 3.25 ms; at most 133.4 ms without one
  queue: 14,000 frames waited, 6.5 ms (p50); busy 71% of the time
  energy: 4.100 ± 0.082 J/s, 301.0 ± 6.0 mJ gross an answered frame, waiting for frames included
  over time: throttled after 1800 s: p50 is above 43 ms"""


def printed(*runs, width=140, why=False):
    """Return the lines that are printed of the runs."""
    out = io.StringIO()
    run_table.print_runs(runs, Console(file=out, width=width), why=why)
    return [line.rstrip() for line in out.getvalue().splitlines()]


def test_the_block_of_a_camera_states_what_was_missed_when_and_what_a_second_costs():
    """Frames with bounds, the first miss after throttling, answers, energy, and how the run held out."""
    lines = printed(camera_hour())
    begin = block(lines)
    assert "\n".join(lines[begin : begin + 7]) == BLOCK
    assert lines[begin + 7].startswith("  why frames were missed: `edgemeter runs why ")


def block(lines, end="may wait:"):
    """Return the index of the block's first line."""
    return next(index for index, line in enumerate(lines) if line.endswith(end))


def test_joules_a_second_are_as_uncertain_as_those_of_a_frame_and_have_no_more_digits():
    """269 mJ of 15 frames a second are 4.036 W; with 124.9 mJ, 46.4% of them, 1.874 W: more than one decimal would be made up."""
    energy = make_energy(gross_mj=269.0435, gross_u_mj=124.9324, mean_power_w=4.035653)
    run = make_record(steady=make_steady(), energy=energy)
    low, high = figure("steady_power_w").bounds(run)
    assert (low, high) == (pytest.approx(2.1617, abs=1e-4), pytest.approx(5.9096, abs=1e-4))
    text = "\n".join(printed(run))
    assert "4.0 J/s (one run; 95% 2.16 to 5.91 within it)" in text
    assert "4.0 ±1.9" in text
    assert "energy: 4.0 ± 1.9 J/s, 269 ± 125 mJ" in text.replace("269.0 ± 124.9", "269 ± 125")


def test_nothing_missed_still_has_a_bound_and_no_first_miss():
    """What a run without a miss shows is at most so many, if nothing comes so seldom that it did not come."""
    steady = make_steady(late=0, missed_ratio=0.0, missed_low_ratio=0.0, missed_high_ratio=0.0041, effective=900, bursts=0)
    lines = printed(make_record(steady=steady, energy=None, energy_reason="no sensor"))
    assert "  frames: 900 in 1 min; none missed (95% 0% to 0.41% if misses come one by one; bursts " in "\n".join(lines)
    assert "that come less than 3 times in such a run may be unseen)" in " ".join(map(str.strip, lines))
    assert not [line for line in lines if line.startswith(("  first miss", "  energy"))]


def test_a_block_of_several_runs_states_what_all_of_them_missed_and_the_worst():
    """None, none and 14 of 153 frames (9.15%) are 14 of 459: the run in the middle alone would say that none was missed."""
    lates = {"a": 0, "b": 14, "c": 0}
    runs = [
        make_record(id=name * 32, steady=make_steady(frames=153, late=late, missed_ratio=late / 153, effective=153))
        for name, late in lates.items()
    ]
    lines = printed(*runs)
    begin = block(lines, "one of 3:")
    line = "  all 3 runs: missed 14 of 459 frames: 0%, 0% and 9.2%; the most in run bbbbbbbb: why: `edgemeter runs why bbbbbbbb`"
    assert lines[begin + 1] == line
    assert "run bbbbbbbb" not in lines[begin]
    quiet = [make_record(id=name * 32, steady=make_steady(late=0, missed_ratio=0.0, effective=900)) for name in "ab"]
    assert not [text for text in printed(*quiet) if text.startswith("  all ")]
