"""Facts about `edgemeter.agent.energy.watch`."""

import json
import math
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

from edgemeter.agent.base import config
from edgemeter.agent.energy import sensor_run, watch
from edgemeter.agent.energy.watch import EnergyWatch


@pytest.fixture
def settings(tmp_path, monkeypatch):
    """Return a configuration whose replay sensor shows 2 W for one second, then 6 W for one, then 2 W again."""
    # A second of power for the rules' ten, so that the test is short.
    monkeypatch.setattr(sensor_run, "SHORTEST_S", 1.0)
    # A busy machine may keep the sampler from reading for a while.
    monkeypatch.setattr(sensor_run, "LARGEST_GAP_RATIO", 0.5)
    path = tmp_path / "trace.json"
    points = {"t_s": [0, 0.999, 1.001, 1.999, 2.001, 60], "power_w": [2, 2, 6, 6, 2, 2]}
    path.write_text(
        json.dumps({"id": "bench", "scope": "board-input", "period_ms": 10, "resolution_w": 0.001, "gain_u_ratio": 0.01, **points})
    )
    return config.Config(sensors={"replay": {"path": str(path)}})


@pytest.mark.alone
def test_the_energy_of_a_block_is_what_the_sensor_saw_in_it(settings):
    """About 6 J gross and 4 J net, halved for two pieces of work; the recording itself determines how much, whenever the block ran."""
    for units in (1, 2):
        with EnergyWatch("replay", idle_s=1.0, units=units, settings=settings) as watching:
            time.sleep(1.0)
        began_ns = watching._sampler.traces()["replay"].readings[0].taken_ns
        start_s = (watching._start_ns - began_ns) / 1e9
        loud_s = max(0.0, min(start_s + watching.seen.seconds, 2.0) - max(start_s, 1.0))
        truth_mj = 1000 * (2 * watching.seen.seconds + 4 * loud_s)
        energy = watching.seen.energies.energy
        # Of a step that fell between two readings nobody knows when it was.
        assert energy.gross_mj * units == pytest.approx(truth_mj, abs=0.03 * truth_mj + 4 * 2 * energy.longest_gap_ms)
        assert abs(energy.gross_mj * units - truth_mj) < 2 * energy.gross_u_mj * units
        assert energy.net_mj < energy.gross_mj
        assert (energy.scope, energy.inferences) == ("board-input", units)


def test_a_short_block_has_a_wide_interval(tmp_path, monkeypatch):
    """A fifth of a second at some 2 W read a hundred times a second; it is not known to 1%, as a minute would be."""
    monkeypatch.setattr(sensor_run, "LARGEST_GAP_RATIO", 0.5)
    sensors = _replayed(tmp_path, period_ms=10, resolution_w=0.001, gain_u_ratio=0.01, t_s=[0, 100], power_w=[2, 2.01])
    with EnergyWatch("meter", idle_s=0.6, settings=config.Config(sensors=sensors)) as watching:
        time.sleep(0.2)
    energy = watching.seen.energies.energy
    assert energy is not None, watching.seen.energies.reason
    assert abs(energy.gross_mj - 2000 * watching.seen.seconds) < energy.gross_u_mj
    assert energy.gross_u_mj > 0.02 * energy.gross_mj


@pytest.mark.services
@pytest.mark.alone
def test_a_job_that_runs_beside_the_block_is_named(settings):
    """A process that neither the block nor its children started, on a core of its own; not so what the block starts itself."""
    for is_ours in (True, False):
        job = "import time, os\nend = time.monotonic() + 3\nwhile time.monotonic() < end: pass"
        # A shell that ends at once leaves its process to nobody of ours.
        orphan = ["sh", "-c", f"exec setsid {sys.executable} -c '{job}' >/dev/null 2>&1 &"]
        with EnergyWatch("replay", idle_s=0.0, settings=settings) as watching:
            started = subprocess.Popen([sys.executable, "-c", job]) if is_ours else subprocess.run(orphan, check=True)
            time.sleep(2.0)
        if is_ours:
            started.kill()
            started.wait()
        named = [doubt for doubt in watching.seen.other_load.doubts if "python" in doubt]
        assert bool(named) is not is_ours, watching.seen.other_load


def test_a_block_that_raises_is_not_hidden(settings):
    """Its error is the caller's; nothing was seen, and the sampler has ended."""

    def fail():
        message = "out of data"
        raise ValueError(message)

    watching = EnergyWatch("replay", idle_s=0.1, settings=settings)
    with pytest.raises(ValueError, match="out of data"), watching:
        fail()
    assert not hasattr(watching, "seen")


def _replayed(tmp_path, name="meter", **changes):
    """Return the settings of a replayed meter of this period, and in `changes` its other fields."""
    path = tmp_path / f"{name}.json"
    path.write_text(json.dumps({"id": name, "scope": "board-input", "t_s": [0, 1, 100], "power_w": [2, 2, 3]} | changes))
    return {name: {"type": "replay", "path": str(path)}}


@pytest.fixture
def hasty(monkeypatch):
    """Let a second of idle be the usual one, and keep what was slept instead of sleeping so long."""
    slept = []
    # Only there: other threads sleep, too.
    monkeypatch.setattr(watch, "time", SimpleNamespace(sleep=slept.append, monotonic_ns=time.monotonic_ns))
    return slept


def test_idle_lasts_as_long_as_the_slowest_sensor_needs_and_this_is_known_before(tmp_path, hasty):
    """A meter of 0.5 Hz needs 28 s: by the function that refuses shorter ones; a faster one leaves the usual 10 s."""
    slow, fast = _replayed(tmp_path, "slow", period_ms=2000), _replayed(tmp_path, "fast", period_ms=100)
    for named, idle_s in (("slow,fast", 28.0), ("fast", 10.0)):
        hasty.clear()
        notes = []
        with EnergyWatch(
            named, settings=config.Config(sensors=slow | fast), report=lambda note, notes=notes: notes.append((note, len(hasty)))
        ) as watching:
            pass
        assert hasty == [idle_s, idle_s]
        assert watching.seen.idle_s == idle_s
        before = [note for note, sleeps in notes if sleeps == 0]
        assert before[-1] == f"idling for {idle_s:g} s ..."
        needs = {"slow,fast": ("slow", "2,000", 100, "28"), "fast": ("fast", "100", 10, "1.4")}
        name, period_ms, work_s, quiet_s = needs[named]
        wide = f"less than {work_s} s of work gets a wide interval"
        takes = f"a net energy takes {quiet_s} s of idle before and after"
        assert before[0] == f"{name}: with a reading every {period_ms} ms {wide}, {takes}"


@pytest.mark.services
def test_a_sensor_that_lags_is_given_the_idle_that_it_needs(tmp_path, monkeypatch):
    """A time constant of 1 s and 2 s of idle: refused with that, it idles longer instead, and the energy is that of the work."""
    monkeypatch.setattr(sensor_run, "SHORTEST_S", 1.0)
    monkeypatch.setattr(sensor_run, "LARGEST_GAP_RATIO", 0.5)
    times = [n * 0.02 for n in range(1500)]
    # The block is at work from 2 s to 4 s, and the sensor shows it late.
    shown_w = [2 + 4 * ((1 - math.exp(-max(0.0, min(t, 4.0) - 2.0))) * math.exp(-max(0.0, t - 4.0))) for t in times]
    settings = config.Config(sensors=_replayed(tmp_path, period_ms=20, resolution_w=0.001, gain_u_ratio=0.01, t_s=times, power_w=shown_w))
    notes = []
    with EnergyWatch("meter", idle_s=2.0, settings=settings, report=notes.append) as watching:
        time.sleep(2.0)
    assert any("s more: a sensor lags, and still shows the work" in note for note in notes)
    energy = watching.seen.energies.energy
    assert energy is not None, watching.seen.energies.reason
    assert energy.gross_mj == pytest.approx(12_000, rel=0.05)
