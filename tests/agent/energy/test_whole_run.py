"""Facts about energies of whole runs.

Real sessions have several sensors, and `verify` checks their records.
"""

import json
import math

import msgspec
import pytest

from edgemeter.agent.bundle.recompute import recompute
from edgemeter.agent.contract.record import RunRecord
from edgemeter.agent.energy import refusals
from edgemeter.agent.energy.sampler import SensorTrace
from edgemeter.agent.power.replay import ReplaySensor
from edgemeter.agent.session import session
from edgemeter.agent.session.run_record import lost_sensors
from tests.fixtures.bundle_factory import make_sound_record
from tests.fixtures.power_traces import make_description
from tests.fixtures.record_factory import make_energy, make_runtime
from tests.fixtures.replay_case import replay_model
from tests.fixtures.suite_files import read_suite


@pytest.fixture
def model(tmp_path):
    """Return a replay model of 20 ms a query."""
    return replay_model(tmp_path, 20.0)


def _meter(folder, scope, power_w):
    """Return a replayed meter of that scope, known to 1%.

    Its power swings by 1 W either way, with 61 points in 5.9 s.
    """
    times = [n * 0.098 for n in range(61)]
    powers = [power_w + math.sin(2 * math.pi * n / 12) for n in range(61)]
    described = {
        "id": scope,
        "scope": scope,
        "period_ms": 98.0,
        "resolution_w": 0.001,
        "gain_u_ratio": 0.01,
    }
    path = folder / f"{scope}.json"
    path.write_text(json.dumps(described | {"t_s": times, "power_w": powers}))
    return ReplaySensor(str(path))


def _measure(model, sensors, *lines):
    path = model.parent / "suite.toml"
    settings = (f'model = "{model}"', "repeats = 1", 'mode = "rapid"', *lines)
    path.write_text("\n".join(['name = "s"', "[[case]]", *settings]))
    outcomes = session.measure(
        read_suite(path),
        session.DeviceIdentity("bench", "f"),
        sensors,
        "none is here",
        lambda _: None,
    )
    (record,) = list(outcomes)
    assert isinstance(record, RunRecord), record
    return record


@pytest.mark.services
def test_several_sensors_of_a_run_each_give_an_energy_and_are_held_against_each_other(
    model, tmp_path, monkeypatch
):
    """The wall reads 5 W and the rails inside it read 7 W, so that the run is disturbed.

    Both energies are those of the traces, and verify agrees.
    """
    # A busy machine may keep the sampler from reading for a while.
    monkeypatch.setattr(refusals, "GAP_RATIO", 0.5)
    sensors = {
        "rails": _meter(tmp_path, "soc-rails", 7.0),
        "wall": _meter(tmp_path, "wall-ac", 5.0),
    }
    record = _measure(model, sensors, "seconds = 11.0", "idle_seconds = 0")
    (rails,) = record.other_energies
    assert (record.energy.scope, rails.scope, "energy" in record.reasons) == (
        "wall-ac",
        "soc-rails",
        False,
    )
    for energy, power_w in ((record.energy, 5.0), (rails, 7.0)):
        truth_mj = power_w * energy.window_ms / record.latency.count
        assert abs(energy.gross_mj - truth_mj) <= energy.gross_u_mj < 0.1 * truth_mj
    assert "implausible-power" in record.verdict.rules
    assert recompute(record)[1] == ()


def test_only_a_sensor_of_a_narrower_scope_takes_the_place_of_a_lost_one():
    """Rails that fail beside a plug that goes on are no loss to the energy at the wall."""
    energies = (make_energy(sensor="rails", scope="module"),)
    absent = SensorTrace("usb", None, (), ended="gone")
    plug, package, going = (
        SensorTrace(name, make_description(id=name, scope=scope), (), ended=why)
        for name, scope, why in (
            ("plug", "wall-ac", "gone"),
            ("rapl", "cpu-package", "gone"),
            ("rails", "module", "late"),
        )
    )
    assert lost_sensors((absent, plug, package, going), energies) == ("usb, gone", "plug, gone")
    assert lost_sensors((absent, plug), ()) == ()


def test_verify_names_an_energy_that_a_blind_sensor_gave_for_an_accelerator():
    """The stated energy has no support where the sensor's scope misses the accelerator.

    The readings are the same, but the case ran on a Coral.
    """
    record = make_sound_record()
    traces = tuple(
        msgspec.structs.replace(trace, scope="soc-rails") for trace in record.power_traces
    )
    forged = msgspec.structs.replace(
        record, power_traces=traces, runtime=make_runtime(name="edgetpu", backend="usb:0,std")
    )
    (difference,) = recompute(forged)[1]
    assert (difference.field, difference.recomputed) == ("energy.gross_mj", None)
