"""Facts about the plugs `shelly` and `tasmota`: an HTTP server in this process plays the meter."""

import json
import threading
from contextlib import closing

import pytest

from edgemeter.agent.base.errors import ConfigError, TransientError, UnavailableError
from edgemeter.agent.power import AbsentError, http_plug
from edgemeter.agent.power.http_plug import Digest, login
from edgemeter.agent.power.shelly import Shelly
from edgemeter.agent.power.tasmota import Tasmota
from edgemeter.agent.power.values import json_number, json_object
from tests.fixtures.http_meter import PlayedMeter, playing
from tests.fixtures.rows import table_row


@pytest.fixture
def password_file(tmp_path):
    path = tmp_path / "password"
    path.write_text("secret\n")
    return str(path)


def ask(path, sensor, *meter, **settings):
    with closing({"shelly": Shelly, "tasmota": Tasmota}[sensor](*meter, **settings)) as client:
        return client.get(path)


def answers(body=b"{}", status=200):
    """Return a meter that answers every request with `body`."""
    return PlayedMeter(lambda _: (status, body))


def test_the_digest_is_that_of_the_standards_own_example(monkeypatch):
    """The example is in RFC 7616, section 3.9.1."""
    monkeypatch.setattr(
        Digest, "get_cnonce", lambda *_: "f2/wE4q74E6zIJEtWaHKaf5wv/H5QzzpXusqGemxURZJ"
    )
    for algorithm, response in [
        ("MD5", "8ca523f5e9506fed4657c9700eebdbec"),
        ("SHA-256", "753927fa0e85d155564e2e272a28d1802ca10daf4496794697cf8db5856cb6c1"),
    ]:
        with table_row(algorithm):
            header = (
                'Digest realm="http-auth@example.org", qop="auth, auth-int", '
                f"algorithm={algorithm}, "
                'nonce="7ypf/xlj9XXwfDPEoM4URrv/xwf94BcCAzFZH4GiTo0v", '
                'opaque="FQhe/qaU925kfnzjCev0ciny7QMkPqMAFRtzCUYo5tdS"'
            )
            header_value = login(header, "the meter", "Mufasa", lambda: "Circle of Life")(
                "/dir/index.html"
            )
            assert f'response="{response}"' in header_value
            assert 'opaque="FQhe/qaU925kfnzjCev0ciny7QMkPqMAFRtzCUYo5tdS"' in header_value


@pytest.mark.parametrize("protect", ["SHA-256", "basic"])
def test_a_password_is_given_where_it_is_asked_for(protect, password_file):
    """Once the meter has asked, every later request carries the password at once."""
    played = answers(b'{"apower": 1}')
    played.protect = protect
    with playing(played):
        meter = Shelly(played.address, password_file=password_file)
        assert [meter.get("/a"), meter.get("/b?id=0")] == [b'{"apower": 1}'] * 2
        assert played.asked == ["/a", "/a", "/b?id=0"]
        # The device was started again, with another nonce.
        played.nonce = "71ab"
        assert meter.get("/c") == b'{"apower": 1}'
        meter.close()


def test_a_wrong_password_is_reported_and_not_shown(tmp_path, password_file):
    """A missing password is reported too."""
    played = answers()
    played.protect, played.password = "SHA-256", "another"
    with playing(played):
        with pytest.raises(UnavailableError, match="refuses the password of 'admin'") as refusal:
            ask("/", "shelly", played.address, password_file=password_file)
        assert "secret" not in str(refusal.value)
        with pytest.raises(UnavailableError, match="set password_file"):
            ask("/", "shelly", played.address)
        with pytest.raises(ConfigError, match="cannot read"):
            ask("/", "shelly", played.address, password_file=str(tmp_path / "absent"))


@pytest.mark.services
def test_a_slow_meter_is_a_reading_that_failed(monkeypatch):
    """A late answer is not waited for, nor taken for the answer to the next request."""
    monkeypatch.setattr(http_plug, "TIMEOUT_S", 0.2)
    may_answer = threading.Event()
    played = PlayedMeter(
        lambda _: (200, b"late" if may_answer.wait(60) and len(played.asked) == 1 else b"now")
    )
    with playing(played):
        meter = Shelly(played.address)
        with pytest.raises(TransientError, match="timed out"):
            meter.get("/")
        may_answer.set()
        assert meter.get("/") == b"now"
        meter.close()


def test_a_refusal_is_distinguished_from_a_busy_meter():
    """The error does not show the query, which may hold a password."""
    for status, error in [(404, UnavailableError), (500, TransientError), (429, TransientError)]:
        with table_row(status):
            with (
                playing(answers(b"no", status)) as played,
                pytest.raises(error, match=str(status)) as refusal,
            ):
                ask("/cm?password=secret", "tasmota", played.address)
            assert "secret" not in str(refusal.value)


def test_an_address_that_was_not_set_is_an_absent_meter():
    """An address that cannot be used is an error in the configuration."""
    with pytest.raises(AbsentError, match="set address"):
        ask("/", "shelly", "")
    for address in ("https://plug", "http://", "plug:port", "//[", "ftp://plug"):
        with pytest.raises(ConfigError, match=r"give .*HOST"):
            ask("/", "shelly", address)


def test_an_unknown_challenge_is_refused():
    """The driver does not answer it with a weaker scheme."""
    with pytest.raises(UnavailableError, match="'SHA-512-256'"):
        login('Digest realm="x", nonce="y", algorithm=SHA-512-256', "the meter", "admin", str)
    with pytest.raises(UnavailableError, match="not known here"):
        login("Negotiate", "the meter", "admin", str)


CUT = [
    b"",
    b"{",
    b'{"a": 1',
    b"\xff{\xfe}",
    b"[1]",
    b"{" * 100_000,
    b'{"a": NaN}',
]


def test_a_reply_that_is_cut_or_garbled_is_a_reading_that_failed():
    """The error is one line, however deep the reply's nesting is."""
    for content in CUT:
        with table_row(content[:20]), pytest.raises(TransientError) as refusal:
            json_object(content, "the meter")
        assert len(str(refusal.value)) < 300, f"{content[:20]!r}"


def test_numbers_may_be_strings_and_nothing_else():
    """Neither true nor infinity is a number of watts."""
    assert [json_number(value) for value in (1, 2.5, "3.5", " 4")] == [1.0, 2.5, 3.5, 4.0]
    assert [
        json_number(value) for value in (True, None, "", "x", [1], {}, "inf", "nan", float("inf"))
    ] == [None] * 9


SWITCH = {
    "id": 0,
    "source": "init",
    "output": True,
    "apower": 25.7,
    "voltage": 230.1,
    "current": 0.13,
    "aenergy": {"total": 5.0},
}


def answering(kind, document, **settings):
    sensor = kind("192.0.2.7", **settings)
    content = document if isinstance(document, bytes) else json.dumps(document).encode()
    sensor.get = lambda _: content
    return sensor


def test_the_power_of_every_form_of_reply():
    """All generations are read, by component or whole device, and a negative power stays so."""
    for document, total_w, names in [
        (SWITCH, 25.7, ["channel:0"]),
        ({"ble": {}, "switch:0": SWITCH, "wifi": {"rssi": -50}}, 25.7, ["switch:0"]),
        ({"em1:0": {"id": 0, "act_power": -12.4, "pf": -0.7}}, -12.4, ["em1:0"]),
        ({"em:0": {"a_act_power": 1.0, "b_act_power": 2.0, "c_act_power": 3.0,
                   "total_act_power": 6.0}}, 6.0, ["em:0"]),
        ({"em:0": {"a_act_power": 1.0, "b_act_power": 2.5, "c_act_power": -3.0}}, 0.5, ["em:0"]),
        ({"meters": [{"power": 47.11, "is_valid": True, "total": 60}], "relays": [{}]}, 47.11,
         ["meter:0"]),
        ({"emeters": [{"power": 10.0, "is_valid": True}, {"power": -2.5, "is_valid": True}],
          "meters": [{"power": 9.0}]}, 7.5, ["emeter:0", "emeter:1"]),
        (SWITCH | {"apower": "25.7"}, 25.7, ["channel:0"]),
        ({"cct:0": {"id": 0, "output": True, "apower": 8.5}, "rgb:0": {"id": 0, "apower": 1.5}},
         10.0, ["cct:0", "rgb:0"]),
    ]:  # fmt: skip
        reading = answering(Shelly, document).read()
        assert reading.power_w == pytest.approx(total_w), f"{document!r}"
        assert [rail.name for rail in reading.rails] == names, f"{document!r}"


def test_a_reply_without_a_power_gives_none():
    """Neither zero nor the last power is given in its place."""
    for document, error, match in [
        (
            {"id": 0, "source": "init", "output": True, "temperature": {"tC": 30}},
            UnavailableError,
            "does not measure",
        ),
        (
            {"code": 404, "message": "No handler for Switch.GetStatus"},
            UnavailableError,
            "404: No handler",
        ),
        ({"meters": [{"power": 3.0, "is_valid": False}]}, TransientError, "no valid power"),
        (SWITCH | {"apower": None}, TransientError, "no valid power"),
        (
            {"em:0": {"a_act_power": 1.0, "b_act_power": None, "c_act_power": 3.0}},
            TransientError,
            "no valid power",
        ),
        (SWITCH | {"apower": "25,7"}, TransientError, "no valid power"),
        (SWITCH | {"apower": 9.9e12}, TransientError, "no valid power"),
        (b'{"id":0,"apower":193.5,"voltage', TransientError, "cut or garbled"),
    ]:
        with table_row(document), pytest.raises(error, match=match):
            answering(Shelly, document).read()


def test_one_channel_of_several_is_measured_when_it_is_named():
    """Without a name all channels are added up, which is noted."""
    both = {"switch:0": SWITCH, "switch:1": SWITCH | {"apower": 4.3}}
    assert answering(Shelly, both, channel="switch:1").read().power_w == 4.3
    with pytest.raises(ConfigError, match="this device has switch:0, switch:1"):
        answering(Shelly, both, channel="switch:2").read()
    warnings = answering(Shelly, both).describe().warnings
    assert warnings == ("2 channels are added up (switch:0, switch:1): set channel to measure one",)


@pytest.mark.parametrize(
    ("answers", "path"),
    [
        ({"/rpc/Shelly.GetStatus": (200, {"switch:0": SWITCH})}, "/rpc/Shelly.GetStatus"),
        (
            {
                "/rpc/Shelly.GetStatus": (404, {}),
                "/status": (200, {"meters": [{"power": 25.7, "is_valid": True}]}),
            },
            "/status",
        ),
    ],
)
def test_a_device_is_asked_in_the_way_of_its_generation(answers, path):
    """The device's generation is found out once, from its reply."""

    def answer(path_asked):
        status, document = answers[path_asked]
        return status, json.dumps(document).encode()

    with playing(PlayedMeter(answer)) as played, closing(Shelly(played.address)) as sensor:
        description = sensor.describe()
        assert description.id == f"shelly:{played.address}"
        assert description.scope == "wall-ac"
        assert description.kind == "power"
        assert description.excludes == ()
        assert sensor.read().power_w == sensor.read().power_w == 25.7
        assert played.asked[-2:] == [path, path]


@pytest.mark.captures
def test_what_real_devices_sent(captures):
    """Captured replies are read, and truncated ones give no number."""
    for name, total_w in [
        ("shelly_switch_getstatus_load_193W.json", 193.5),
        ("shelly_gen1_status_1pm.json", 4711.12),
        ("tasmota_status8_2019.json", 26.0),
        # Three phases of 11, 0 and 0 W.
        ("tasmota_tele_SENSOR_3phase_power_array.json", 11.0),
    ]:
        kind = Shelly if name.startswith("shelly") else Tasmota
        content = (captures / "plugs" / name).read_bytes().rstrip()
        assert answering(kind, content).read().power_w == total_w
        for length in range(0, len(content) - 1, 37):
            with pytest.raises((TransientError, UnavailableError)):
                answering(kind, content[:length]).read()


def status(power, **energy):
    return {
        "StatusSNS": {
            "Time": "2026-11-20T09:00:00",
            "ENERGY": {"Total": 1.5, "Power": power, "Voltage": 230, **energy},
        }
    }


def test_the_power_of_every_form_of_a_tasmota_reply():
    """Status and telemetry, channels and lists, and old and new firmware are read."""
    for answer, total_w, channels in [
        (status(26), 26.0, 1),
        (status([11, 0, 4.5]), 15.5, 3),
        (status("26.4"), 26.4, 1),
        ({"Time": "2024-05-05T13:27:21", "ENERGY": {"Power": 7.25}}, 7.25, 1),
        ({"StatusPWR": {"Total": 1.0, "Power": 12, "Factor": 0.9}}, 12.0, 1),
        ({"StatusSNS": {"DHT11": {"Temperature": "21.0"}, "ENERGY": {"Power": 3}}}, 3.0, 1),
    ]:
        reading = answering(Tasmota, answer).read()
        assert reading.power_w == pytest.approx(total_w), f"{answer!r}"
        assert len(reading.rails) == channels, f"{answer!r}"


def test_a_tasmota_reply_without_a_power_gives_none():
    """An incomplete list does not give a total."""
    for answer, error, match in [
        ({"StatusSNS": {"Time": "x"}}, UnavailableError, "does not measure power"),
        ({"StatusSNS": {"ENERGY": {"Total": 1}}}, UnavailableError, "does not measure power"),
        (
            {"WARNING": "Need user=<username>&password=<password>"},
            UnavailableError,
            "set user and password_file",
        ),
        (status(None), TransientError, "gives no valid power"),
        (status([11, None]), TransientError, "gives no valid power"),
        (status([]), TransientError, "gives no valid power"),
        (status(1e13), TransientError, "gives no valid power"),
        (b'{"StatusSNS":{"ENERGY":{"Power":26', TransientError, "cut or garbled"),
    ]:
        with table_row(answer), pytest.raises(error, match=match):
            answering(Tasmota, answer).read()


def test_the_resolution_is_what_the_plug_shows():
    """A plug shows whole watts by default, which is reported with the remedy."""
    for answer, step_w in [
        (status(26), 1.0),
        (status(26.4), 0.1),
        (status([26.45, 0]), 0.01),
        (status("2.125"), 0.001),
    ]:
        description = answering(Tasmota, answer).describe()
        assert description.resolution_w == pytest.approx(step_w), f"{answer!r}"
        assert any("WattRes 1" in warning for warning in description.warnings) == (step_w == 1.0), (
            f"{answer!r}"
        )


def test_a_plug_is_polled_over_http(tmp_path):
    """The plug's command is found once, and each request carries the password.

    The password is not shown when a request fails.
    """
    (tmp_path / "password").write_text("se&cret")

    def answer(path):
        if "password=se&cret" not in path:
            return 200, b'{"WARNING":"Need user=<username>&password=<password>"}'
        return 200, json.dumps(
            status(5.5) if path.endswith("Status 10") else {"Command": "Unknown"}
        ).encode()

    with playing(PlayedMeter(answer)) as played:
        with closing(Tasmota(played.address, password_file=str(tmp_path / "password"))) as sensor:
            assert sensor.describe().id == f"tasmota:{played.address}"
            assert sensor.read().power_w == sensor.read().power_w == 5.5
        assert [path.rpartition("cmnd=")[2] for path in played.asked] == [
            "Status 8",
            "Status 10",
            "Status 10",
            "Status 10",
        ]
        with (
            closing(Tasmota(played.address)) as sensor,
            pytest.raises(UnavailableError, match="refuses"),
        ):
            sensor.describe()
        played.answer = lambda _: (500, b"")
        with (
            closing(Tasmota(played.address, password_file=str(tmp_path / "password"))) as sensor,
            pytest.raises(TransientError) as refusal,
        ):
            sensor.read()
        assert "cret" not in str(refusal.value)
