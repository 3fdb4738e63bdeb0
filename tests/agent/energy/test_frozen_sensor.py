"""Facts about `edgemeter.agent.energy.frozen_sensor`, and what a run with such a sensor becomes."""

import dataclasses
import json

import pytest

from edgemeter.agent.bundle.recompute import FigureDifference, recompute
from edgemeter.agent.contract import suite
from edgemeter.agent.energy import sensor_run
from edgemeter.agent.energy.refusals import is_frozen
from edgemeter.agent.energy.window import Window
from edgemeter.agent.power.replay import ReplaySensor
from edgemeter.agent.session import session
from tests.fixtures.power_traces import AFTER, BEFORE, TIMED, S, make_counter, make_trace
from tests.fixtures.replay_case import replay_case


def test_a_sensor_is_frozen_if_it_repeats_its_idle_value_through_the_load():
    """Whether it hung from the start or while the machine idled; not one that lags, and not without idle to compare with."""
    for number, (power, before, after, expected) in enumerate(
        [
            (lambda _: 3.25, BEFORE, AFTER, True),
            (lambda t: 2.0 + t / 100 if t < 15 else 3.25, BEFORE, AFTER, True),
            (lambda t: 5.0 if 20 <= t < 50 else 2.0, BEFORE, AFTER, False),
            (lambda t: 5.0 if 20 <= t < 53 else 2.0, BEFORE, AFTER, False),
            (lambda t: 5.0 if 20 <= t < 53 else 2.0, None, AFTER, False),
            (lambda _: 3.25, None, AFTER, True),
            (lambda _: 3.25, None, None, False),
            (lambda _: 3.25, Window(0, S // 5), None, False),
        ]
    ):
        assert is_frozen(make_trace(power, 70), TIMED, before, after) == expected, f"row {number}"


def test_a_counter_that_moves_evenly_is_not_frozen():
    """Its readings differ; one that stands still gives no energy at all. A power that it shows beside does not count."""
    counter = make_counter(3.25, 70)
    readings = tuple(dataclasses.replace(one, power_w=3.25) for one in counter.readings)
    assert not is_frozen(dataclasses.replace(counter, readings=readings), TIMED, BEFORE, AFTER)


def test_a_run_with_a_frozen_sensor_is_suspect_and_verify_agrees(tmp_path, monkeypatch):
    """From the readings to the verdict in the record, and from the record to the same verdict."""
    monkeypatch.setattr(sensor_run, "SHORTEST_S", 0.05)
    # A busy machine may keep the sampler from reading for a while.
    monkeypatch.setattr(sensor_run, "LARGEST_GAP_RATIO", 0.9)
    monkeypatch.setattr(sensor_run, "FEWEST_INFERENCES", 1)
    document = {"id": "plug", "scope": "wall-ac", "period_ms": 10, "gain_u_ratio": 0.01, "resolution_w": 1.0}
    (tmp_path / "plug.json").write_text(json.dumps({**document, "t_s": [0, 1], "power_w": [4, 4]}))
    # Out of step with the period of the sensor, which would be refused.
    replay_case(tmp_path, "a", 23.4)
    (tmp_path / "suite.toml").write_text(
        'name = "s"\n[[case]]\nmodel = "a.replay.json"\nmode = "rapid"\nrepeats = 1\nidle_seconds = 1\nagreement = "never"\n'
    )
    cases, sensors = suite.read(tmp_path / "suite.toml"), {"plug": ReplaySensor(str(tmp_path / "plug.json"))}
    (record,) = session.measure(cases, session.DeviceIdentity("bench", "f"), sensors, "", lambda _: None)
    assert record.energy is not None, record.energy_reason
    assert record.energy.mean_power_w == pytest.approx(4)
    assert any(reason.startswith("frozen-sensor: replay:plug showed 4 W") for reason in record.verdict.reasons)
    assert record.verdict.state in {"suspect", "invalid"}
    assert [one for one in recompute(record) if isinstance(one, FigureDifference) and one.field.startswith("verdict")] == []
