import os
import tempfile
from pathlib import Path

import pytest

from edgemeter.agent.base import config
from edgemeter.agent.base.errors import ConfigError
from tests.fixtures.ordinary_user import closed_mode, ordinary_user
from tests.fixtures.rows import table_row


def test_the_environment_beats_the_file(tmp_path, monkeypatch):
    """A variable replaces the key file, and a setting without a variable stays as in the file."""
    path = tmp_path / "config.toml"
    path.write_text('signing_key_file = "file.key"\n')
    assert config.read(path).signing_key_file == str(tmp_path / "file.key")
    monkeypatch.setenv("EDGEMETER_SIGNING_KEY_FILE", "variable.key")
    assert config.read(path).signing_key_file == "variable.key"


def test_a_wrong_key_or_value_is_named(tmp_path):
    """The error about a typo states the path of the key."""
    for text, says in [
        ("brokr = 'x'", "brokr"),
        ("device = 'a/b'", "`device` has to be a name"),
        ("= 1", "configuration"),
    ]:
        path = tmp_path / "config.toml"
        path.write_text(text)
        with table_row(text), pytest.raises(ConfigError, match=says):
            config.read(path)


def test_a_home_that_may_not_be_read_holds_no_configuration(monkeypatch):
    """After `sudo -u` the variable HOME still names the home of the other user."""
    with tempfile.TemporaryDirectory() as home:
        Path(home).chmod(closed_mode())
        monkeypatch.setenv("HOME", f"{home}/user")
        monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
        monkeypatch.setattr(config, "EVERYONE", Path(home) / "absent.toml")
        with ordinary_user():
            assert config.read() == config.Config()
        Path(home).chmod(0o700)


def test_the_configuration_is_searched_below_xdg_config_home(monkeypatch, tmp_path):
    """A file below $XDG_CONFIG_HOME, else below ~/.config, takes precedence over one in /etc."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.setattr(config, "EVERYONE", tmp_path / "etc.toml")
    config.EVERYONE.write_text('device = "everyone"\n')
    assert (config.places()[0], config.read().device) == (
        tmp_path / ".config/edgemeter/config.toml",
        "everyone",
    )
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))
    user_file = tmp_path / "xdg" / "edgemeter" / "config.toml"
    user_file.parent.mkdir(parents=True)
    user_file.write_text('device = "own"\n')
    assert (config.file_in_use(), config.read().device) == (user_file, "own")


def test_a_user_without_a_home_gets_that_of_the_service(monkeypatch):
    """A user id without a name, as in a container, gets a path that errors can name."""
    for name in ("HOME", "EDGEMETER_HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 54_321)
    assert config.home() == config.SERVICE_HOME
    assert config.places() == [config.EVERYONE]


def test_home_prefers_our_own_variable(monkeypatch):
    """EDGEMETER_HOME takes precedence over XDG_DATA_HOME, and that over ~/.local/share."""
    monkeypatch.setenv("HOME", "/home/u")
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    monkeypatch.delenv("EDGEMETER_HOME", raising=False)
    assert config.home() == Path("/home/u/.local/share/edgemeter")
    monkeypatch.setenv("XDG_DATA_HOME", "/data")
    assert config.home() == Path("/data/edgemeter")
    monkeypatch.setenv("EDGEMETER_HOME", "/own")
    assert config.home() == Path("/own")


def test_a_host_name_becomes_a_device_name(monkeypatch):
    """Each character that a topic may not contain becomes a dash."""
    for host, name in [("pi5", "pi5"), ("Bob's Pi!", "Bob-s-Pi"), ("---", "device"), ("_x_", "x")]:
        monkeypatch.setattr("platform.node", lambda host=host: host)
        assert config.this_device() == name


def test_paths_are_relative_to_the_configuration(tmp_path, monkeypatch):
    """A relative path counts from the configuration's folder, wherever a command is called.

    Absolute paths and paths below the home stay as they are. Suites follow the same rule.
    """
    monkeypatch.setenv("HOME", "/home/ada")
    (tmp_path / "config.toml").write_text(
        'broker = "mqtts://u@b?ca=tls/ca.pem&password_file=/etc/secret"\nsigning_key_file = '
        '"~/lab.key"\n'
        '[sensors.replay]\npath = "power.json"\nscope = "board-input"\n'
    )
    monkeypatch.chdir("/")
    settings = config.read(tmp_path / "config.toml")
    assert settings.broker == f"mqtts://u@b?ca={tmp_path}/tls/ca.pem&password_file=/etc/secret"
    assert settings.signing_key_file == "/home/ada/lab.key"
    assert settings.sensors == {
        "replay": {"path": str(tmp_path / "power.json"), "scope": "board-input"}
    }
