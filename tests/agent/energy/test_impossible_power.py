"""Facts about `edgemeter.agent.energy.impossible_power`, from the readings of a sensor up to what `compare` makes of the record."""

import inspect
import json

import pytest

from edgemeter.agent import power
from edgemeter.agent.contract import suite
from edgemeter.agent.contract.record import RunRecord
from edgemeter.agent.energy.refusals import REVERSIBLE, power_refusal
from edgemeter.agent.power.replay import ReplaySensor
from edgemeter.agent.session import session
from edgemeter.collector.compare.summary import energy_of
from edgemeter.collector.runs.cases import group_cases
from tests.fixtures.power_traces import make_description
from tests.fixtures.replay_case import replay_case


def test_the_sensors_whose_remedy_is_a_direction_are_those_that_have_the_setting():
    """A remedy that the sensor refuses would be worse than none."""
    knowing = {name for name in power.SENSORS if "direction" in inspect.signature(power.sensor_class(name)).parameters}
    assert knowing == REVERSIBLE


def test_a_power_above_zero_is_possible():
    """A power of 1 nW while idle is not refused."""
    assert power_refusal(make_description(), 1e-9, "while idle") is None


@pytest.mark.parametrize(("power_w", "reason"), [(-3.066, "its clamp or its wiring is reversed"), (0.0, "below what the plug can show")])
def test_a_run_with_an_impossible_power_has_a_reason_and_no_energy_in_record_and_comparison(tmp_path, power_w, reason):
    """A real session with a sensor that reads so: no energy in the record, and `compare` shows the reason."""
    trace = tmp_path / "plug.json"
    trace.write_text(json.dumps({"id": "plug", "scope": "wall-ac", "period_ms": 20, "t_s": [0, 1], "power_w": [power_w, power_w]}))
    replay_case(tmp_path, "a", 5.0)
    (tmp_path / "suite.toml").write_text(
        'name = "s"\n[[case]]\nmodel = "a.replay.json"\nmode = "rapid"\nrepeats = 1\nidle_seconds = 0.5\nagreement = "never"\n'
    )
    cases = suite.read(tmp_path / "suite.toml")
    (record,) = session.measure(cases, session.DeviceIdentity("bench", "f"), {"plug": ReplaySensor(str(trace))}, "", lambda _: None)
    assert isinstance(record, RunRecord), record
    assert record.energy is None
    assert reason in record.energy_reason
    assert "energy" not in record.provenance
    (case,), _ = group_cases([record])
    assert energy_of(case.runs)[:2] == (None, record.energy_reason)
