"""Facts about `edgemeter.agent.power.http_plugs`."""

import json
from contextlib import closing

import pytest

from edgemeter.agent.base.errors import ConfigError, TransientError, UnavailableError
from edgemeter.agent.power.http_plugs import Tasmota
from edgemeter.agent.power.recording import PowerRecording
from edgemeter.agent.power.world import SensorWorld
from tests.fixtures.http_meter import PlayedMeter, playing
from tests.fixtures.rows import table_row


def sensor_of(answer, **settings):
    """Return the sensor on a recorded answer."""
    content = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
    return Tasmota(world=SensorWorld(content=content), **settings)


def status(power, **energy):
    """Return a status with that power."""
    return {"StatusSNS": {"Time": "2026-11-20T09:00:00", "ENERGY": {"Total": 1.5, "Power": power, "Voltage": 230, **energy}}}


def test_the_power_of_every_form_of_reply():
    """Status and telemetry, one channel and lists, numbers and strings, old firmware and new."""
    for answer, total_w, channels in [
        (status(26), 26.0, 1),
        (status([11, 0, 4.5]), 15.5, 3),
        (status("26.4"), 26.4, 1),
        (status(-3.2), -3.2, 1),
        (status(0), 0.0, 1),
        ({"Time": "2024-05-05T13:27:21", "ENERGY": {"Power": 7.25}}, 7.25, 1),
        ({"StatusPWR": {"Total": 1.0, "Power": 12, "Factor": 0.9}}, 12.0, 1),
        ({"StatusSNS": {"DHT11": {"Temperature": "21.0"}, "ENERGY": {"Power": 3}}}, 3.0, 1),
        (b'STATUS8 = {"StatusSNS":{"ENERGY":{"Power": 0}}}', 0.0, 1),
        (b'STATUS = {"Status":{"Power":1}}\nSTATUS8 = {"StatusSNS":{"ENERGY":{"Power":26}}}', 26.0, 1),
        (b'tele/x/STATE {"POWER":"ON"}\ntele/x/SENSOR {"ENERGY":{"Power":[3,4]}}', 7.0, 2),
    ]:
        reading = sensor_of(answer).read()
        assert reading.power_w == pytest.approx(total_w), f"{answer!r}"
        assert len(reading.rails) == channels, f"{answer!r}"


def test_a_reply_without_a_power_gives_none():
    """Part of a list is no total."""
    for answer, error, said in [
        ({"StatusSNS": {"Time": "x"}}, UnavailableError, "does not measure power"),
        ({"StatusSNS": {"ENERGY": {"Total": 1}}}, UnavailableError, "does not measure power"),
        ({"Command": "Unknown"}, UnavailableError, "does not measure power"),
        ({"WARNING": "Need user=<username>&password=<password>"}, UnavailableError, "set user and password_file"),
        (status(None), TransientError, "gives no valid power"),
        (status([11, None]), TransientError, "gives no valid power"),
        (status([]), TransientError, "gives no valid power"),
        (status("much"), TransientError, "gives no valid power"),
        (status("26,5"), TransientError, "gives no valid power"),
        (status(1e13), TransientError, "gives no valid power"),
        (b'STATE {"POWER":"ON"}\nSENSOR {"ENERGY":{"Power":26', TransientError, "cut or garbled"),
        (status(True), TransientError, "gives no valid power"),
        (b'{"StatusSNS":{"ENERGY":{"Power":26', TransientError, "cut or garbled"),
    ]:
        with table_row(answer), pytest.raises(error, match=said):
            sensor_of(answer).read()


def test_the_resolution_is_what_the_plug_shows():
    """Whole watts by default, which is reported with the remedy."""
    for answer, step_w in [(status(26), 1.0), (status(26.4), 0.1), (status([26.45, 0]), 0.01), (status("2.125"), 0.001)]:
        found = sensor_of(answer).describe()
        assert found.resolution_w == pytest.approx(step_w), f"{answer!r}"
        assert any("WattRes 1" in warning for warning in found.warnings) == (step_w == 1.0), f"{answer!r}"


def test_one_channel_of_several_is_measured_when_it_is_named():
    """Counted from 1, as on the plug."""
    assert sensor_of(status([11, 0, 4.5]), channel="3").read().power_w == 4.5
    with pytest.raises(ConfigError, match="this device has 1, 2, 3"):
        sensor_of(status([11, 0, 4.5]), channel="4").read()


def test_a_plug_is_polled_over_http(tmp_path):
    """A real server: the command it knows is found once, the password goes with each request, and is not shown when it fails."""
    (tmp_path / "password").write_text("se&cret")

    def answer(path):
        if "password=se&cret" not in path:
            return 200, b'{"WARNING":"Need user=<username>&password=<password>"}'
        return 200, json.dumps(status(5.5) if path.endswith("Status 10") else {"Command": "Unknown"}).encode()

    with playing(PlayedMeter(answer)) as played:
        with closing(Tasmota(played.address, password_file=str(tmp_path / "password"))) as sensor:
            assert sensor.describe().id == f"tasmota:{played.address}"
            assert sensor.read().power_w == sensor.read().power_w == 5.5
        assert [path.rpartition("cmnd=")[2] for path in played.asked] == ["Status 8", "Status 10", "Status 10", "Status 10"]
        with closing(Tasmota(played.address)) as sensor, pytest.raises(UnavailableError, match="refuses"):
            sensor.describe()
        played.answer = lambda _: (500, b"")
        with closing(Tasmota(played.address, password_file=str(tmp_path / "password"))) as sensor, pytest.raises(TransientError) as caught:
            sensor.read()
        assert "cret" not in str(caught.value)


@pytest.mark.captures
@pytest.mark.parametrize(("name", "total_w"), [("tasmota_status8_2019.json", 26.0), ("tasmota_tele_SENSOR_3phase_power_array.json", 11.0)])
def test_what_real_plugs_sent(captures, name, total_w):
    """As captured: 26 W; and three phases of 11, 0 and 0 W. Cut replies give no number."""
    path = captures / "plugs" / name
    with PowerRecording(path) as recording:
        found = recording.read()
    assert (found.name, found.reading.power_w, found.description.scope) == ("tasmota", total_w, "wall-ac")
    content = path.read_bytes().rstrip()
    for length in range(10, len(content) - 1, 17):
        with pytest.raises((TransientError, UnavailableError)):
            sensor_of(content[:length]).read()


def test_a_refusal_is_recognised_however_its_json_is_spaced():
    """A command that the firmware does not know."""
    assert all(map(Tasmota.recognises, (b'{"Command":"Unknown"}', b'{ "Command": "Unknown" }')))


def test_a_plug_that_counts_pulses_sees_all_of_the_time():
    """So it is never in step with the queries, however often it renews its value."""
    found = sensor_of(status(26)).describe().averaging
    assert (found.seen_ratio, found.window_s, found.sources) == (1.0, None, {"seen_ratio": "published"})
