"""Facts about `edgemeter.agent.cli.steady_block`."""

import io
import re

import pytest
from rich.console import Console

from edgemeter.agent.base.figures import share
from edgemeter.agent.cli import run_table
from edgemeter.agent.contract.figures import figure
from tests.fixtures.camera_hour import camera_hour
from tests.fixtures.record_factory import make_energy, make_model, make_record, make_steady
from tests.fixtures.rows import table_row

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


def test_the_run_over_time_is_a_table_of_six_stretches():
    """Every missed frame is in one of them; clock and temperature stand beside."""
    lines = printed(camera_hour())
    table = lines[block(lines) + 8 :]
    heading = next(index for index, line in enumerate(table) if line.split()[:2] == ["from", "missed"])
    assert table[heading].split() == ["from", "missed", "service", "p50", "ms", "MHz", "°C", "W"]
    rows = [line for line in table if line.endswith(" 4.1")]
    assert [row.split()[-5] for row in rows] == ["0", "0", "0", "1,740", "1,800", "1,800"]
    assert rows[0].split() == ["0", "s", "0", "41", "1500", "57.4", "4.1"]
    assert rows[5].split()[:3] == ["50", "min", "1,800"]


def test_a_sweep_has_a_block_a_case_without_the_table():
    """Six stretches of each power mode are nothing to read; `--why` shows them."""
    runs = [camera_hour(), camera_hour(model=make_model(name="other"))]
    for why, tables in ((False, 0), (True, 2)):
        with table_row(why):
            lines = printed(*runs, why=why)
            assert sum(line.endswith("may wait:") for line in lines) == 2
            assert sum(line.split()[:2] == ["from", "missed"] for line in lines) == tables


def test_the_first_line_answers_whether_the_rate_is_held():
    """Missed frames first, then latency and joules a second, each with what is known of its certainty; the table has them too."""
    lines = printed(camera_hour())
    assert "15 frames a second on pi-1: missed frames 9.9% (one run; 95% 4.0% to 18% within it), p50 45 ms (" in lines[0]
    assert "4.100 J/s (one run; 95% 4.02 to 4.18 within it)" in lines[0]
    heading = next(line for line in lines if "Missed" in line and "J/s" in line)
    assert "verdict" in heading


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


def test_dependent_frames_have_a_reason_in_place_of_bounds():
    """No interval is made up."""
    text = "\n".join(printed(make_record(steady=make_steady(effective=3))))
    assert "missed 3, 0.33% (no bounds: the frames depend on each other too much; as 3 independent frames): 0 dropped, 3 late" in text


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


def runs_with(misses, **changes):
    """Return runs of 900 frames of which so many were missed one by one."""
    return [
        make_record(
            id=f"{number}" * 32,
            steady=make_steady(late=late, missed_ratio=late / 900, effective=900, bursts=late, longest_burst=min(late, 1)),
            energy=None,
            energy_reason="no sensor",
            **changes,
        )
        for number, late in enumerate(misses)
    ]


@pytest.mark.parametrize("repeats", [3, 5, 6])
def test_runs_that_hold_their_rate_have_one_bound_together(repeats):
    """The default of three repeats that miss nothing, and more of them: the bound of all their frames."""
    high = share(1 - 0.025 ** (1 / (repeats * 900)))
    assert f"missed frames 0% (95% 0% to {high} over {repeats} runs)" in printed(*runs_with([0] * repeats))[0]


def test_shares_of_runs_are_pooled_and_never_above_one():
    """32 of 2,700 frames are 1.2%; runs that differ are worth fewer frames. The block says which run it is of."""
    lines = printed(*runs_with([1, 1, 30]))
    low, high = re.search(r"missed frames 1\.2% \(95% (\S+)% to (\S+)% over 3 runs\)", lines[0]).groups()
    assert float(low) < 0.5
    assert 2.5 < float(high) < 10
    assert lines[block(lines, "one of 3:")].endswith("may wait; run 11111111, one of 3:")


def test_an_energy_where_frames_were_dropped_is_of_an_answered_one():
    """The joules of all frames are shared by those that had an answer; without a dropped frame these are all."""
    assert "mJ gross an answered frame" in printed(camera_hour())[0]
    assert "mJ gross a frame" in printed(make_record(steady=make_steady()))[0]
    assert any("mJ gross a frame, waiting" in line for line in printed(make_record(steady=make_steady())))


def test_a_few_bursts_are_named_and_unjudged_frames_are_no_dependent_ones():
    """What the bounds rest on stands beside them."""
    bursts = make_steady(missed_low_ratio=0.002, missed_high_ratio=0.07, effective=44, bursts=2, longest_burst=2)
    assert "(95% 0.20% to 7.0%; as 44 independent frames, in 2 bursts)" in "\n".join(printed(make_record(steady=bursts)))
    assert "(no bounds: more frames than are judged)" in "\n".join(printed(make_record(steady=make_steady())))
