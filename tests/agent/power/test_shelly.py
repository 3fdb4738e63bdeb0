"""Facts about `edgemeter.agent.power.http_plugs`."""

import json
from contextlib import closing

import pytest

from edgemeter.agent.base.errors import ConfigError, TransientError, UnavailableError
from edgemeter.agent.power.http_plugs import Shelly
from edgemeter.agent.power.recording import PowerRecording
from edgemeter.agent.power.world import SensorWorld
from tests.fixtures.http_meter import PlayedMeter, playing
from tests.fixtures.rows import table_row

SWITCH = {"id": 0, "source": "init", "output": True, "apower": 25.7, "voltage": 230.1, "current": 0.13, "aenergy": {"total": 5.0}}


def shown(document, **settings):
    """Return the reading of a recorded answer."""
    content = document if isinstance(document, bytes) else json.dumps(document).encode()
    return Shelly(world=SensorWorld(content=content), **settings).read()


def test_the_power_of_every_form_of_reply():
    """Of one component or the whole device, of all generations, by HTTP or MQTT; a negative power stays negative."""
    for document, total_w, names in [
        (SWITCH, 25.7, ["channel:0"]),
        ({"ble": {}, "switch:0": SWITCH, "wifi": {"rssi": -50}}, 25.7, ["switch:0"]),
        ({"switch:0": SWITCH, "switch:1": SWITCH | {"id": 1, "apower": 4.3}}, 30.0, ["switch:0", "switch:1"]),
        ({"id": 1, "src": "shellyplugsg3", "result": SWITCH}, 25.7, ["channel:0"]),
        ({"src": "x", "method": "NotifyStatus", "params": {"ts": 1.0, "switch:0": {"id": 0, "apower": 7.1}}}, 7.1, ["switch:0"]),
        ({"id": 0, "voltage": 231.0, "current": 0.02, "apower": 1.2, "freq": 50.0}, 1.2, ["channel:0"]),
        ({"pm1:0": {"id": 0, "apower": 3.3, "voltage": 230.0}}, 3.3, ["pm1:0"]),
        ({"em1:0": {"id": 0, "act_power": -12.4, "pf": -0.7}}, -12.4, ["em1:0"]),
        ({"em:0": {"a_act_power": 1.0, "b_act_power": 2.0, "c_act_power": 3.0, "total_act_power": 6.0}}, 6.0, ["em:0"]),
        ({"em:0": {"a_act_power": 1.0, "b_act_power": 2.5, "c_act_power": -3.0}}, 0.5, ["em:0"]),
        ({"meters": [{"power": 47.11, "is_valid": True, "total": 60}], "relays": [{}]}, 47.11, ["meter:0"]),
        ({"emeters": [{"power": 10.0, "is_valid": True}, {"power": -2.5, "is_valid": True}], "meters": [{"power": 9.0}]}, 7.5,
         ["emeter:0", "emeter:1"]),
        ({"power": 12.5, "is_valid": True, "total": 3}, 12.5, ["channel:0"]),
        (SWITCH | {"apower": "25.7"}, 25.7, ["channel:0"]),
        ({"cct:0": {"id": 0, "output": True, "apower": 8.5}, "rgb:0": {"id": 0, "apower": 1.5}}, 10.0, ["cct:0", "rgb:0"]),
        (b'$ curl -d \'{"id":1,"method":"Switch.GetStatus"}\' http://192.0.2.7/rpc\n{"id":0,"apower":3.5}\n', 3.5, ["channel:0"]),
        (b'x/events/rpc {"params":{"switch:0":{"temperature":{}}}}\nx/events/rpc {"params":{"switch:0":{"apower":4}}}', 4.0, ["switch:0"]),
        (SWITCH | {"apower": 0.0}, 0.0, ["channel:0"]),
    ]:  # fmt: skip
        reading = shown(document)
        assert reading.power_w == pytest.approx(total_w), f"{document!r}"
        assert [rail.name for rail in reading.rails] == names, f"{document!r}"


def test_a_reply_without_a_power_gives_none():
    """Never zero, and never the last one."""
    for document, error, said in [
        ({"id": 0, "source": "init", "output": True, "temperature": {"tC": 30}}, UnavailableError, "does not measure"),
        ({"switch:0": {"id": 0, "output": True}}, UnavailableError, "does not measure"),
        ({"code": 404, "message": "No handler for Switch.GetStatus"}, UnavailableError, "404: No handler"),
        ({"meters": [{"power": 3.0, "is_valid": False}]}, TransientError, "no valid power"),
        (SWITCH | {"apower": None}, TransientError, "no valid power"),
        ({"em:0": {"a_act_power": 1.0, "b_act_power": None, "c_act_power": 3.0}}, TransientError, "no valid power"),
        (SWITCH | {"apower": "many"}, TransientError, "no valid power"),
        (SWITCH | {"apower": "25,7"}, TransientError, "no valid power"),
        (SWITCH | {"apower": "1_000"}, TransientError, "no valid power"),
        (SWITCH | {"apower": 9.9e12}, TransientError, "no valid power"),
        ({"code": -105, "message": "Argument 'id', value 5 not found!"}, UnavailableError, "-105: Argument"),
        (b'{"id":0,"apower":193.5,"voltage', TransientError, "cut or garbled"),
        (b'{"apower": NaN}', TransientError, "cut or garbled"),
    ]:
        with table_row(document), pytest.raises(error, match=said):
            shown(document)


def test_one_channel_of_several_is_measured_when_it_is_named():
    """Without a name all are added up, which is noted."""
    both = {"switch:0": SWITCH, "switch:1": SWITCH | {"apower": 4.3}}
    assert shown(both, channel="switch:1").power_w == 4.3
    with pytest.raises(ConfigError, match="this device has switch:0, switch:1"):
        shown(both, channel="switch:2")
    warnings = Shelly(world=SensorWorld(content=json.dumps(both).encode())).describe().warnings
    assert warnings == ("2 channels are added up (switch:0, switch:1): set channel to measure one",)


def test_a_small_power_is_doubted():
    """Some models show nothing below a few watts."""
    content = json.dumps(SWITCH | {"apower": 2.0}).encode()
    assert "check this one with a known load" in Shelly(world=SensorWorld(content=content)).describe().warnings[0]


@pytest.mark.parametrize(
    ("answers", "path"),
    [
        ({"/rpc/Shelly.GetStatus": (200, {"switch:0": SWITCH})}, "/rpc/Shelly.GetStatus"),
        ({"/rpc/Shelly.GetStatus": (404, {}), "/status": (200, {"meters": [{"power": 25.7, "is_valid": True}]})}, "/status"),
    ],
)
def test_a_device_is_asked_in_the_way_of_its_generation(answers, path):
    """Found out once, by what it answers."""

    def answer(asked):
        status, document = answers[asked]
        return status, json.dumps(document).encode()

    with playing(PlayedMeter(answer)) as played, closing(Shelly(played.address)) as sensor:
        found = sensor.describe()
        assert found.id == f"shelly:{played.address}"
        assert found.scope == "wall-ac"
        assert found.kind == "power"
        assert found.excludes == ()
        assert sensor.read().power_w == sensor.read().power_w == 25.7
        assert played.asked[-2:] == [path, path]


def test_a_reading_that_fails_is_no_end(tmp_path):
    """The device drops a connection, asks for its password, and goes on."""
    (tmp_path / "password").write_text("secret")
    played = PlayedMeter(lambda _: (200, json.dumps({"switch:0": SWITCH}).encode()), protect="SHA-256")
    with playing(played), closing(Shelly(played.address, password_file=str(tmp_path / "password"))) as sensor:
        assert sensor.read().power_w == 25.7
        sensor.close()
        played.drops = 1
        with pytest.raises(TransientError):
            sensor.read()
        assert sensor.read().power_w == 25.7


@pytest.mark.captures
@pytest.mark.parametrize(("name", "total_w"), [("shelly_switch_getstatus_load_193W.json", 193.5), ("shelly_gen1_status_1pm.json", 4711.12)])
def test_what_real_devices_sent(captures, name, total_w):
    """As captured; the reader is found by the form, and cut replies give no number."""
    path = captures / "plugs" / name
    with PowerRecording(path) as recording:
        found = recording.read()
    assert (found.name, found.reading.power_w, found.description.scope) == ("shelly", total_w, "wall-ac")
    content = path.read_bytes()
    for length in range(120, len(content) - 2, 37):
        with pytest.raises((TransientError, UnavailableError)):
            shown(content[:length])


def test_a_shellys_power_is_a_mean_of_a_second():
    """As its maker publishes."""
    found = Shelly(world=SensorWorld(content=b'{"switch:0": {"apower": 12.5}}')).describe().averaging
    assert (found.window_s, found.update_interval_s, set(found.sources.values())) == (1.0, 1.0, {"published"})
