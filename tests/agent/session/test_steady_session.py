"""Facts about frames at a fixed rate, end to end: real processes on the replay runtime, beside a replayed power trace."""

import json

import pytest

from edgemeter.agent.bundle.recompute import FigureDifference, SameFigure, recompute
from edgemeter.agent.contract import record
from edgemeter.agent.contract.figures import FIGURES
from tests.fixtures.command import edgemeter
from tests.fixtures.replay_case import write_replay

# Wherever in them the timed part begins, one call in five takes longer than 60 ms, and none is dropped at 15 frames a second.
ONE_IN_FIVE_MS = [20.0, 20.0, 20.0, 20.0, 62.0]


def five_watts(folder):
    """Write a power recording of 5 W, out of step with 15 frames a second, and return its path."""
    path = folder / "power.json"
    trace = {"id": "five", "scope": "board-input", "period_ms": 43.0, "resolution_w": 0.001, "gain_u_ratio": 0.001}
    path.write_text(json.dumps(trace | {"t_s": [0.0, 0.043, 0.086], "power_w": [5.0, 5.0, 5.0]}))
    return path


def differences(run):
    """Return the fields that come out otherwise when they are computed again."""
    return [finding for finding in recompute(run) if isinstance(finding, FigureDifference)]


@pytest.mark.alone
def test_the_command_gives_the_misses_and_joules_of_a_calculation_by_hand(tmp_path):
    """15 frames a second for 10 s at 5 W: 150 frames, 30 of them late, 333.3 mJ each, 5 J a second; recomputed exactly."""
    write_replay(tmp_path, "x", latencies_ms=ONE_IN_FIVE_MS)
    (tmp_path / "config.toml").write_text(f'[sensors.replay]\npath = "{five_watts(tmp_path)}"\n')
    options = ("--rate", 15, "--deadline", "60ms", "--repeats", 1, "--power", "replay", "--config", tmp_path / "config.toml", "--json")
    result = edgemeter("run", tmp_path / "x.replay.json", *options)
    assert result.returncode == 0, result.stderr
    (document,) = json.loads(result.stdout)["runs"]
    run = record.decode(json.dumps(document).encode())
    steady = run.steady
    assert (steady.rate_per_s, steady.deadline_ms, steady.queue_frames, steady.frames) == (15.0, 60.0, 1, 150)
    assert (steady.dropped, steady.late, steady.missed_ratio, steady.longest_row) == (0, 30, 0.2, 1)
    assert run.windows.timed_end_ns == 10_000_000_000
    assert run.throughput_per_s == 15.0
    assert run.energy.inferences == 150
    assert run.energy.gross_mj == pytest.approx(5000 * 10 / 150)
    assert run.energy.mean_power_w == pytest.approx(5.0)
    # Four calls of 20 ms and one of 62 ms in a third of a second.
    assert run.load.utilisation_ratio == pytest.approx(0.426, abs=0.03)
    assert run.load.is_sustained
    assert next(figure for figure in FIGURES if figure.name == "duty_cycle_ratio").of(run) == run.load.utilisation_ratio
    assert any(note.startswith("frames-missed: 30 of 150 frames were missed by 60 ms (0 dropped, 30 late)") for note in run.verdict.notes)
    assert differences(run) == []
    assert "steady.missed_ratio" in {finding.field for finding in recompute(run) if isinstance(finding, SameFigure)}
