"""Facts about `edgemeter.agent.settings.sources`: option over variable over file over default, and each value names which it was."""

from edgemeter.agent.base import config
from edgemeter.agent.settings.sources import settings


def by_key(*arguments):
    """Return value and source of every setting."""
    return {setting.key: (setting.value, setting.source) for setting in settings(*arguments)}


def test_each_value_names_its_source(tmp_path, monkeypatch):
    """The same key comes from four places, the nearest wins."""
    path = tmp_path / "config.toml"
    path.write_text('device = "file"\nfleet = "file"\nbroker = "file"\npower = ["rapl"]\n[sensors.nvml]\ngpu = "1"\n')
    monkeypatch.setenv("EDGEMETER_HOME", str(tmp_path))
    environ = {"EDGEMETER_HOME": str(tmp_path), "EDGEMETER_FLEET": "variable", "EDGEMETER_BROKER": "variable"}
    by_name = by_key(path, {"broker": "option", "device": None}, environ)
    assert (by_name["device"], by_name["fleet"], by_name["broker"]) == (
        ("file", str(path)), ("variable", "EDGEMETER_FLEET"), ("option", "--broker"),
    )  # fmt: skip
    assert (by_name["power"], by_name["outbox_limit_mb"]) == ((["rapl"], str(path)), (512, "default"))
    assert (by_name["sensors.nvml.gpu"], by_name["home"]) == (("1", str(path)), (str(tmp_path), "EDGEMETER_HOME"))


def test_a_certificate_names_the_device_whatever_the_file_states(tmp_path):
    """As the broker knows it."""
    (tmp_path / "identity.json").write_text('{"device": "certified", "fleet": "lab"}')
    path = tmp_path / "config.toml"
    path.write_text(f'device = "copied"\nbroker_certificate_file = "{tmp_path / "device.pem"}"\n')
    by_name = by_key(path, {}, {})
    assert by_name["device"] == ("certified", f"identity.json beside {tmp_path / 'device.pem'}")


def test_every_setting_is_there_without_a_file(tmp_path, monkeypatch):
    """With its default; the device has the host's name."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setattr(config, "EVERYONE", tmp_path / "absent.toml")
    by_name = by_key(None, {}, {})
    assert {source for _, source in by_name.values()} == {"default", "default: the host name"}
    assert set(config.Config.__struct_fields__) - {"sensors"} <= by_name.keys()
