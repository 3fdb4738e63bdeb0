"""Facts about energies of whole runs: real sessions with several sensors, estimates, and what `verify` makes of them."""

import json
import math

import msgspec
import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.bundle.recompute import FigureDifference, recompute
from edgemeter.agent.contract import suite
from edgemeter.agent.contract.record import RunRecord
from edgemeter.agent.contract.record_figures import PowerTrace
from edgemeter.agent.energy import sensor_run
from edgemeter.agent.power.replay import ReplaySensor
from edgemeter.agent.session import session
from edgemeter.agent.session.run_record import lost_sensors
from tests.fixtures.bundle_factory import make_sound_record
from tests.fixtures.record_factory import make_energy, make_runtime
from tests.fixtures.replay_case import replay_model


@pytest.fixture
def model(tmp_path):
    """Return a replay model of 20 ms a query."""
    return replay_model(tmp_path, 20.0)


def _meter(folder, scope, power_w):
    """A replayed meter of that scope: its power swings by 1 W either way, 61 points in 5.9 s, and is known to 1%."""
    times = [n * 0.098 for n in range(61)]
    powers = [power_w + math.sin(2 * math.pi * n / 12) for n in range(61)]
    described = {"id": scope, "scope": scope, "period_ms": 98.0, "resolution_w": 0.001, "gain_u_ratio": 0.01}
    path = folder / f"{scope}.json"
    path.write_text(json.dumps(described | {"t_s": times, "power_w": powers}))
    return ReplaySensor(str(path))


def _measure(model, sensors, *lines):
    path = model.parent / "suite.toml"
    settings = (f'model = "{model}"', "repeats = 1", 'mode = "rapid"', 'agreement = "never"', *lines)
    path.write_text("\n".join(['name = "s"', "[[case]]", *settings]))
    outcomes = session.measure(suite.read(path), session.DeviceIdentity("bench", "f"), sensors, "none is here", lambda _: None)
    (record,) = list(outcomes)
    assert isinstance(record, RunRecord), record
    return record


@pytest.mark.services
def test_several_sensors_of_a_run_each_give_an_energy_and_are_held_against_each_other(model, tmp_path, monkeypatch):
    """The wall reads 5 W and rails inside it 7 W: both energies are what the traces hold, the run is suspect, and verify agrees."""
    # A busy machine may keep the sampler from reading for a while.
    monkeypatch.setattr(sensor_run, "LARGEST_GAP_RATIO", 0.5)
    sensors = {"rails": _meter(tmp_path, "soc-rails", 7.0), "wall": _meter(tmp_path, "wall-ac", 5.0)}
    record = _measure(model, sensors, "seconds = 11.0", "queries = 100", "idle_seconds = 0")
    (rails,) = record.other_energies
    assert (record.energy.scope, rails.scope, record.energy_reason) == ("wall-ac", "soc-rails", None)
    for energy, power_w in ((record.energy, 5.0), (rails, 7.0)):
        truth_mj = power_w * energy.window_ms / energy.inferences
        assert abs(energy.gross_mj - truth_mj) <= energy.gross_u_mj < 0.1 * truth_mj
    assert any(reason.startswith("implausible-power: ") for reason in record.verdict.reasons)
    assert [finding for finding in recompute(record) if isinstance(finding, FigureDifference)] == []


def test_only_a_sensor_of_a_narrower_scope_takes_the_place_of_a_lost_one():
    """Rails that fail beside a plug that goes on are no loss to the energy at the wall."""
    energies = (make_energy(sensor="rails", scope="module"),)
    absent, plug = PowerTrace(name="usb", ended="gone"), PowerTrace(name="plug", sensor="plug:1", scope="wall-ac", ended="gone")
    package = PowerTrace(name="rapl", sensor="rapl", scope="cpu-package", ended="gone")
    going = PowerTrace(name="rails", sensor="rails", scope="module", ended="late")
    assert lost_sensors((absent, plug, package, going), energies) == ("usb: gone", "plug: gone")
    assert lost_sensors((absent, plug), ()) == ()


@pytest.mark.services
def test_a_run_without_a_sensor_may_carry_an_estimate_that_is_marked(model):
    """7 W over the timed part: labelled estimated, without an uncertainty, and recomputed by verify."""
    record = _measure(model, {}, "estimate_power_w = 7.0")
    assert record.provenance["energy"] == "estimated"
    assert record.energy.gross_mj == pytest.approx(7.0 * record.energy.window_ms / record.latency.count)
    assert (record.energy.gross_u_mj, record.energy.net_mj, record.energy.samples) == (None, None, 0)
    assert [finding for finding in recompute(record) if isinstance(finding, FigureDifference)] == []


def test_an_estimate_beside_a_sensor_is_refused(model, tmp_path):
    """What is measured needs no guess; nothing is run."""
    with pytest.raises(ConfigError, match="estimate_power_w"):
        _measure(model, {"wall": _meter(tmp_path, "wall-ac", 5.0)}, "estimate_power_w = 7.0")


def test_verify_names_an_energy_that_a_blind_sensor_gave_for_an_accelerator():
    """The same readings, but the case ran on a Coral and the scope does not see it: the stated energy has no support."""
    record = make_sound_record()
    traces = tuple(msgspec.structs.replace(trace, scope="soc-rails") for trace in record.power_traces)
    forged = msgspec.structs.replace(record, power_traces=traces, runtime=make_runtime(name="edgetpu", backend="usb:0,std"))
    differing = {finding.field: finding for finding in recompute(forged) if isinstance(finding, FigureDifference)}
    assert differing["energy"].recomputed is None
    assert "USB accelerator" in differing["energy_reason"].recomputed
