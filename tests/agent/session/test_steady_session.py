"""Facts about frames at a fixed rate, end to end: real processes on the replay runtime, beside a replayed power trace."""

import json
import os

import pytest

from edgemeter.agent.bundle.recompute import FigureDifference, SameFigure, recompute
from edgemeter.agent.contract import record, suite
from edgemeter.agent.contract.case_settings import Settings
from edgemeter.agent.contract.figures import FIGURES
from edgemeter.agent.energy import sensor_run
from edgemeter.agent.power.replay import ReplaySensor
from edgemeter.agent.session import session
from tests.fixtures.command import edgemeter
from tests.fixtures.replay_case import write_replay

WHO = session.DeviceIdentity("bench", "lab")
# Wherever in them the timed part begins, one call in five takes longer than 60 ms, and none is dropped at 15 frames a second.
ONE_IN_FIVE_MS = [20.0, 20.0, 20.0, 20.0, 62.0]


def five_watts(folder):
    """Write a power recording of 5 W, out of step with 15 frames a second, and return its path."""
    path = folder / "power.json"
    trace = {"id": "five", "scope": "board-input", "period_ms": 43.0, "resolution_w": 0.001, "gain_u_ratio": 0.001}
    path.write_text(json.dumps(trace | {"t_s": [0.0, 0.043, 0.086], "power_w": [5.0, 5.0, 5.0]}))
    return path


def run_of(folder, sensors=None, **settings):
    """Return the record of one run of `m.replay.json`."""
    usual = {"model": "m.replay.json", "mode": "quick", "repeats": 1, "idle_seconds": 0.0, "scenario": "steady"}
    cases = suite.expand(suite.SuiteFile(name="s", case=[Settings(**(usual | settings))]), folder)
    (outcome,) = session.measure(cases, WHO, sensors or {}, "no sensor", lambda _: None)
    assert isinstance(outcome, record.RunRecord), outcome
    return outcome


def differences(run):
    """Return the fields that come out otherwise when they are computed again."""
    return [finding for finding in recompute(run) if isinstance(finding, FigureDifference)]


@pytest.mark.services
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


@pytest.mark.services
@pytest.mark.alone
def test_frames_that_are_dropped_cost_their_energy_all_the_same(tmp_path, monkeypatch):
    """100 ms of 66.7: two of three frames are answered, each with the joules of one and a half periods."""
    monkeypatch.setattr(sensor_run, "LARGEST_GAP_RATIO", 0.5)
    write_replay(tmp_path, latencies_ms=[100.0])
    run = run_of(tmp_path, {"five": ReplaySensor(str(five_watts(tmp_path)))}, rate_per_s=15.0, seconds=12.0)
    answered = run.latency.count
    assert run.steady.frames == 180
    assert run.steady.dropped == 180 - answered
    assert answered == pytest.approx(120, abs=2)
    assert run.energy.gross_mj * answered == pytest.approx(5.0 * run.energy.window_ms)
    assert run.energy.window_ms == pytest.approx(12_000, abs=150)
    assert run.verdict.state == "suspect"
    assert any(reason.startswith("rate-not-held: 15 frames/s arrived, ") for reason in run.verdict.reasons)
    assert not any(reason.startswith("rate-not-sustained") for reason in run.verdict.reasons)
    assert differences(run) == []


@pytest.mark.services
@pytest.mark.alone
def test_a_run_on_one_core_keeps_the_schedule(tmp_path):
    """The waiting process shares its core with nobody it started itself."""
    write_replay(tmp_path, latencies_ms=[5.0])
    run = run_of(tmp_path, rate_per_s=30.0, seconds=3.0, cpus=[max(os.sched_getaffinity(0))])
    assert run.steady.frames == 128
    assert run.load.queueing.p50_ms < 1.0
