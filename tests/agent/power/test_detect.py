"""Which power sensors are found, chosen and opened, and what one reads now."""

import json
import socket
from pathlib import Path
from unittest import mock

import pytest

from edgemeter.agent import power
from edgemeter.agent.base.errors import ConfigError, TransientError, UnavailableError
from edgemeter.agent.power import Rail, Reading
from edgemeter.agent.power.detect import (
    DetectedSensor,
    choose_sensor,
    detect_sensors,
    open_sensors,
    read_now,
)
from tests.fixtures.machine_trees import write
from tests.fixtures.power_traces import PlayedSensor, make_description
from tests.fixtures.rows import table_row

TREES = Path(__file__).resolve().parents[2] / "fixtures/power"


def test_the_widest_scope_is_chosen_and_reported():
    """The wall plug is chosen before the module's rails, and the sensor it replaces is named."""
    rows = [
        DetectedSensor("rails", make_description(scope="soc-rails"), None),
        DetectedSensor("plug", make_description(scope="wall-ac"), None),
        DetectedSensor("absent", None, "not here"),
    ]
    assert choose_sensor(rows) == ("plug", "plug, which sees wall-ac, more than rails")
    # Rails that only root may read are not reported as absent.
    rows = [
        DetectedSensor("rapl", None, "no counters", is_absent=True),
        DetectedSensor("ina3221", None, "no permission to read '/sys/x'"),
    ]
    assert choose_sensor(rows) == (
        None,
        "ina3221 is here and cannot be read: no permission to read '/sys/x'",
    )


def test_a_replay_is_found_only_when_configured_and_never_chosen(tmp_path, monkeypatch):
    """A replay plays a recording and must not be taken for a meter."""
    monkeypatch.setattr(power, "names", lambda: ["rapl", "replay"])
    assert [sensor.name for sensor in detect_sensors(root=tmp_path)] == ["rapl"]
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"scope": "wall-ac", "t_s": [0, 1], "power_w": [1, 1]}))
    sensors = {
        sensor.name: sensor for sensor in detect_sensors({"replay": {"path": str(path)}}, tmp_path)
    }
    assert sensors["replay"].description is not None
    assert choose_sensor(sensors.values())[0] is None


@pytest.fixture
def settings(tmp_path):
    path = tmp_path / "trace.json"
    path.write_text(
        json.dumps({"id": "bench", "scope": "module", "t_s": [0, 1], "power_w": [2, 2]})
    )
    return {"replay": {"path": str(path)}}


def test_power_none_opens_no_sensor_and_states_the_reason(settings):
    """The reason names the option `--power none`."""
    with open_sensors("none", ("replay",), settings) as (sensors, why):
        assert (sensors, why) == ({}, "power was not to be measured (--power none)")


def test_what_is_named_goes_before_what_is_usual(settings):
    """A usual sensor goes before one that is merely found."""
    for names, usual in (("replay", ()), (" replay ,replay", ()), (None, ("replay",))):
        with open_sensors(names, usual, settings) as (sensors, _):
            assert list(sensors) == ["replay"]


def test_a_named_sensor_that_is_not_here_ends_the_command(settings):
    """The command ends before anything is measured, and closes the sensors opened before it."""
    for names in ("replay,shelly", "shelly"):
        with (
            pytest.raises(
                UnavailableError, match=r"set address.*see `edgemeter energy sensors`.*--power"
            ),
            open_sensors(names, (), settings),
        ):
            pytest.fail("opened")
    with pytest.raises(ConfigError, match="wattmeter"), open_sensors("wattmeter", (), settings):
        pytest.fail("opened")


def test_a_gain_of_the_user_s_is_applied(settings):
    """With the gain, 2 W shown are 2.04 W, and the uncertainty is the stated one.

    A gain that is no number is refused.
    """
    settings["replay"] |= {"gain": 1.02, "gain_u_ratio": "0.005"}
    with open_sensors("replay", (), settings) as (sensors, _):
        assert (sensors["replay"].read().power_w, sensors["replay"].describe().gain_u_ratio) == (
            pytest.approx(2.04),
            0.005,
        )
    for gain in ("0", "two"):
        with (
            pytest.raises(ConfigError, match=r"\[sensors.replay\] gain = "),
            open_sensors("replay", (), {"replay": {**settings["replay"], "gain": gain}}),
        ):
            pytest.fail("opened")


def test_a_gain_multiplies_what_is_shown_and_its_steps_and_no_rail():
    """Power and energy are multiplied; the driver's uncertainty stays if the user states none."""
    reading = Reading(5, power_w=2.0, energy_mj=100.0, rails=(Rail("VDD", 2.0),))
    sensor = power.ConfiguredSensor(
        PlayedSensor(reading, gain_u_ratio=0.05, resolution_w=0.1), gain=1.1
    )
    assert sensor.read() == Reading(
        5, power_w=pytest.approx(2.2), energy_mj=pytest.approx(110.0), rails=(Rail("VDD", 2.0),)
    )
    description = sensor.describe()
    assert (description.gain_u_ratio, description.resolution_w, description.offset_u_w) == (
        0.05,
        pytest.approx(0.11),
        None,
    )
    # A record whose figures were multiplied says so wherever it names the sensor.
    assert description.id == f"{PlayedSensor(reading).describe().id}*1.1"


def test_what_the_user_states_of_a_sensor_takes_the_place_of_the_driver_s(settings):
    """The user can state the gain's temperature drift and the sensor's delay.

    A sensor without settings states neither.
    """
    with open_sensors("replay", (), settings) as (sensors, _):
        description = sensors["replay"].describe()
        assert (description.gain_drift_ratio, description.delay_ms) == (0.0, None)
    settings["replay"] |= {"gain_drift_ratio": "0.01", "delay_ms": "1000"}
    with open_sensors("replay", (), settings) as (sensors, _):
        description = sensors["replay"].describe()
        assert (description.gain_drift_ratio, description.delay_ms, description.id) == (
            0.01,
            1000.0,
            "replay:bench",
        )
        assert sensors["replay"].read().power_w == 2.0
    for key in ("gain_drift_ratio", "delay_ms"):
        with (
            pytest.raises(ConfigError, match=rf"\[sensors.replay\] {key} = '-1'"),
            open_sensors("replay", (), {"replay": {**settings["replay"], key: "-1"}}),
        ):
            pytest.fail("opened")


def test_a_sensor_that_no_board_ran_says_so(settings, tmp_path, monkeypatch):
    """The warning is in every description of the sensor, but a replay does not repeat it."""
    root = write(tmp_path, json.loads((TREES / "hwmon/tree.json").read_text()))
    monkeypatch.setattr(power, "names", lambda: ["hwmon"])
    (sensor,) = detect_sensors(root=root)
    assert any(warning.startswith("untried on a board") for warning in sensor.description.warnings)
    with open_sensors("replay", (), settings) as (sensors, _):
        assert sensors["replay"].describe().warnings == ()


@pytest.fixture
def rails_only(monkeypatch, tmp_path):
    """Make a module's rails the only sensor of this machine.

    `power.create` gives it a replay of 2 W for `ina3221`.
    """
    path = tmp_path / "rails.json"
    path.write_text(
        json.dumps({"id": "rails", "scope": "module", "t_s": [0, 1], "power_w": [2, 2]})
    )
    create = power.create
    monkeypatch.setattr(
        power,
        "create",
        lambda name, **settings: (
            create("replay", path=str(path)) if name == "ina3221" else create(name, **settings)
        ),
    )
    monkeypatch.setattr(power, "names", lambda: ["ina3221", "shelly", "rapl"])


@pytest.mark.usefixtures("rails_only")
def test_a_configured_sensor_that_is_absent_is_named_in_the_record(monkeypatch):
    """If the configured plug does not reply, it is named and the rails replace it.

    A sensor that nobody configured is not reported as missing.
    """
    monkeypatch.setattr(socket, "create_connection", mock.Mock(side_effect=ConnectionRefusedError))
    plug = {"shelly": {"address": "127.0.0.1:1"}}
    with open_sensors(None, (), plug) as (sensors, why):
        assert list(sensors) == ["shelly", "ina3221"]
        assert why.startswith("ina3221, which sees module; shelly is here and cannot be read: ")
        with pytest.raises(UnavailableError, match=r"127\.0\.0\.1:1"):
            sensors["shelly"].describe()
        with pytest.raises(UnavailableError, match=r"127\.0\.0\.1:1"):
            sensors["shelly"].read()
        assert sensors["ina3221"].read().power_w == 2.0
    with open_sensors(None, (), {}) as (sensors, why):
        assert (list(sensors), why) == (["ina3221"], "ina3221, which sees module")
    with open_sensors("ina3221", (), plug) as (sensors, _):
        assert list(sensors) == ["ina3221"]


def test_a_blocked_sensor_yields_to_one_that_may_give_an_energy_and_is_named_unless_it_sees_less():
    """A supply chip with an unconfirmed shunt is named when the rails replace it.

    Beside a plug it would not have been taken anyway.
    """
    blocked = DetectedSensor(
        "ina2xx",
        make_description(scope="board-input", blocked="confirm its shunt"),
        None,
        is_configured=True,
    )
    rails, plug = (
        DetectedSensor(name, make_description(scope=scope), None)
        for name, scope in (("rails", "soc-rails"), ("plug", "wall-ac"))
    )
    name, why = choose_sensor([blocked, rails])
    assert (name, why.endswith("; ina2xx gives no energy as it is set up: confirm its shunt")) == (
        "rails",
        True,
    )
    assert choose_sensor([blocked, plug])[1] == "plug, which sees wall-ac, more than ina2xx"
    assert choose_sensor([blocked]) == ("ina2xx", "ina2xx, which sees board-input")


def test_a_misspelt_or_wrongly_typed_key_is_named_with_the_keys_that_exist():
    """The error comes before anything is measured, even if the command names no sensor."""
    for table, says in [
        ({"adress": "192.0.2.7"}, "'shelly' has no setting 'adress'"),
        ({"address": True}, "address = True in .* is neither text nor number"),
        (
            {"address": ["192.0.2.7"]},
            "address = \\['192.0.2.7'\\] in .* is neither text nor number",
        ),
        ({"root": "x"}, "no setting 'root'"),
        ({"clock": "x"}, "no setting 'clock'"),
    ]:
        with table_row(table):
            for name in (None, "shelly"):
                with (
                    pytest.raises(ConfigError, match=says) as refusal,
                    open_sensors(name, (), {"shelly": table}),
                ):
                    pytest.fail("opened")
                assert "[sensors.shelly]" in str(refusal.value)
                assert str(refusal.value).endswith(
                    "the keys of shelly are type, address, channel, user, password_file, gain, "
                    "gain_u_ratio, gain_drift_ratio, delay_ms"
                )


def test_a_counter_shows_how_fast_it_moves_and_no_power_where_it_does_not():
    """A counter that gains 2.5 J in half a second shows 5 W.

    One that stands still does not show zero, as it may move in coarse steps.
    """
    for end_mj, power_w in ((3500.0, 5.0), (1000.0, None)):
        readings = Reading(0, energy_mj=1000.0), Reading(500_000_000, energy_mj=end_mj)
        assert (
            read_now("x", PlayedSensor(*readings, kind="energy"), sleep=lambda _: None).power_w
            == power_w
        )


def test_a_reading_that_fails_is_shown_with_its_reason():
    """The list continues with the other sensors."""
    live = read_now("x", PlayedSensor(TransientError("busy")))
    assert (live.power_w, live.error) == (None, "busy")
    assert live.description is not None
