import json

import pytest
from click.testing import CliRunner

from edgemeter.agent.base import config
from edgemeter.agent.cli.main import cli


@pytest.fixture
def user_file(monkeypatch, tmp_path):
    """Return the path of the user's own configuration, in an empty home."""
    monkeypatch.setattr(config, "EVERYONE", tmp_path / "etc.toml")
    for name in ("EDGEMETER_CONFIG", "EDGEMETER_BROKER", "EDGEMETER_DEVICE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    path = tmp_path / "edgemeter" / "config.toml"
    path.parent.mkdir()
    return path


def run(*arguments):
    return CliRunner().invoke(cli, ["config", *arguments], catch_exceptions=False)


def test_show_names_where_each_value_comes_from(user_file, monkeypatch):
    """An option precedes a variable, that precedes the file, and that the default.

    A variable that nobody reads is reported as a typo.
    """
    user_file.write_text(
        'device = "file"\nfleet = "file"\nbroker = "file"\n[sensors.nvml]\ngpu = "1"\n'
    )
    monkeypatch.setenv("EDGEMETER_FLEET", "variable")
    monkeypatch.setenv("EDGEMETER_BROKER", "variable")
    monkeypatch.setenv("EDGEMETER_BROKR", "variable")
    monkeypatch.setenv("EDGEMETER_MQTT_PASSWORD", "hunter2")
    result = run("show", "--broker", "option")
    lines = {line.split()[0]: line.split(maxsplit=2)[1:] for line in result.stdout.splitlines()}
    assert lines["device"] == ['"file"', str(user_file)]
    assert lines["fleet"] == ['"variable"', "EDGEMETER_FLEET"]
    assert lines["broker"] == ['"option"', "--broker"]
    assert lines["outbox_limit_mb"] == ["512", "default"]
    assert lines["sensors.nvml.gpu"] == ['"1"', str(user_file)]
    assert "EDGEMETER_MQTT_PASSWORD = (secret)" in result.stdout
    assert "hunter2" not in result.output
    assert "EDGEMETER_BROKR is set, but nothing reads it" in result.stderr
    document = json.loads(run("show", "--format", "json").stdout)
    assert {"key": "fleet", "value": "variable", "source": "EDGEMETER_FLEET"} in document[
        "settings"
    ]
    assert document["variables"]["EDGEMETER_BROKER"] == "variable"


def test_show_names_the_file_that_is_read_and_how_to_begin(user_file):
    """The first file that exists is read, and a hint writes one at the first path."""
    config.EVERYONE.write_text("")
    assert run("show").stderr.splitlines()[:2] == [
        f"{user_file}: absent",
        f"{config.EVERYONE}: read",
    ]
    user_file.write_text("")
    assert run("show").stderr.splitlines()[:2] == [
        f"{user_file}: read",
        f"{config.EVERYONE}: not read",
    ]
    assert json.loads(run("show", "--format", "json").stdout)["files"][0] == {
        "path": str(user_file),
        "exists": True,
        "is_read": True,
    }
    user_file.unlink()
    config.EVERYONE.unlink()
    assert f"edgemeter config sample > {user_file}" in run("show").stderr


def test_a_sample_that_was_just_written_has_no_mistakes(user_file):
    """Without a file the defaults hold, which is no mistake either."""
    result = run("check")
    assert (result.exit_code, result.stdout) == (0, "")
    assert f"neither {user_file}" in result.stderr
    user_file.write_text(run("sample").stdout)
    result = run("check")
    assert (result.exit_code, result.stdout) == (
        0,
        f"{user_file}: no mistakes (configuration of the agent)\n",
    )


def test_check_prints_every_mistake_with_file_section_and_key(user_file, monkeypatch):
    """The exit status is 2; by default the file that the environment names is checked."""
    user_file.write_text('devise = "pi"\n[sensors.rapl]\nshunt = "1"\n')
    result = run("check", str(user_file))
    assert result.exit_code == 2
    first, second = result.stdout.splitlines()
    assert first.startswith(f"{user_file}: `devise` is not a key")
    assert second.startswith(f"{user_file}: `shunt` in [sensors.rapl] is not a key")
    document = json.loads(run("check", str(user_file), "--format", "json").stdout)
    assert (document["kind"], [mistake["key"] for mistake in document["mistakes"]]) == (
        "agent",
        ["devise", "shunt"],
    )
    other = user_file.with_name("other.toml")
    other.write_text("fleets = 1")
    monkeypatch.setenv("EDGEMETER_CONFIG", str(other))
    assert run("check").stdout.startswith(f"{other}: `fleets` is not a key")
