"""Files that people write: each sample loads, and all mistakes are named at once."""

import msgspec
import pytest

from edgemeter.agent import power
from edgemeter.agent.base.config import Config
from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.toml_mistakes import mistakes
from edgemeter.agent.contract.suite import SuiteFile
from edgemeter.agent.settings import files
from edgemeter.agent.settings.files import settings
from edgemeter.collector.alerts.rules import AlertRules
from edgemeter.provisioning.inventory.fleet_file import FleetFile

DOCUMENTS = {"agent": Config, "suite": SuiteFile, "alerts": AlertRules, "fleet": FleetFile}


def keys(document):
    """Return every key of a file, without those of tables that the user names."""
    return {field.encode_name for field in msgspec.structs.fields(document)}


def switched_on(kind):
    """Return the sample without the `# ` of its commented defaults."""
    return "\n".join(line.removeprefix("# ") for line in files.sample(kind).splitlines())


def test_a_sample_is_of_its_kind_and_without_mistakes(tmp_path):
    """The sample is checked as it is printed; only the files that a suite names are missing."""
    for kind in files.FILES:
        path = tmp_path / "sample.toml"
        path.write_text(files.sample(kind))
        file_kind, wrong = files.check_file(path, None if kind != "agent" else kind)
        assert (
            file_kind,
            [mistake for mistake in wrong if "no such file" not in mistake.what],
        ) == (
            "suite" if kind in ("mlperf-tiny", "detector-study", "camera") else kind,
            [],
        ), f"{kind!r}"


def test_a_sample_shows_every_key_and_loads_with_all_of_them_switched_on():
    """The suite's sample has keys that exclude each other.

    Its own test switches them on one after the other.
    """
    for kind in ["agent", "alerts", "fleet"]:
        content = msgspec.toml.decode(switched_on(kind))
        assert mistakes(content, DOCUMENTS[kind]) == [], f"{kind!r}"
        assert keys(DOCUMENTS[kind]) - set(content) == set(), f"{kind!r}"


def test_the_sample_has_a_table_for_every_sensor_with_settings(tmp_path):
    """The table comes from the data sheet with every key, and the sensor takes its values."""
    path = tmp_path / "config.toml"
    path.write_text(switched_on("agent"))
    assert files.check_file(path) == ("agent", [])
    tables = msgspec.toml.decode(path.read_text())["sensors"]
    assert {name: set(table) for name, table in tables.items()} == {
        name: set(power.defaults(name)) for name in power.SENSORS if power.defaults(name)
    }


def test_every_mistake_in_a_configuration_is_named_at_once(tmp_path):
    """Wrong keys and values, unknown sensors, and sensors' wrong keys and values are named."""
    path = tmp_path / "config.toml"
    path.write_text(
        'devise = "pi"\noutbox_limit_mb = 0\npower = ["nmvl"]\n[sensors.hwmon]\nshunt = "0.1"\n'
        "device = true\n[sensors.rpal]\n"
        '[sensors.bench]\ntype = "hwmon"\nshunt = 0.1\nscope = "bord"\n'
    )
    kind, mistakes_found = files.check_file(path)
    assert kind == "agent"
    assert [(mistake.section, mistake.key) for mistake in mistakes_found] == [
        ("", "devise"), ("", "outbox_limit_mb"), ("", "power"), ("[sensors.hwmon]", "shunt"),
        ("[sensors.hwmon]", "device"),
        ("[sensors.rpal]", "type"), ("[sensors.bench]", "shunt"), ("[sensors.bench]", ""),
    ]  # fmt: skip
    assert "did you mean shunt_ohm?" in mistakes_found[3].what
    assert "did you mean rapl?" in mistakes_found[5].what
    assert "scope = 'bord': choose one of soc-rails, module, board-input" in mistakes_found[7].what


def test_every_case_of_a_suite_is_checked(tmp_path):
    """Missing files, unknown runtimes, unreadable files and conflicting keys are named."""
    (tmp_path / "here.onnx").touch()
    path = tmp_path / "suite.toml"
    path.write_text(
        'name = "s"\n[[case]]\nmodel = "here.onnx"\n[[case]]\nmodel = "gone.onnx"\ndata = '
        '"photos"\n[[case]]\nmodel = "here.onnx"\n'
        'runtime = "onxx"\n[[case]]\nmodel = "a.doc"\n[[case]]\nmodel = "here.onnx"\n'
        'deadline = "60ms"\n'
    )
    kind, all_mistakes = files.check_file(path)
    assert (kind, [(mistake.section[-1], mistake.key) for mistake in all_mistakes]) == (
        "suite",
        [("2", "model"), ("2", "data"), ("3", "runtime"), ("4", ""), ("5", "")],
    )
    assert "steady needs rate_per_s" in all_mistakes[-1].what


def test_what_is_wrong_beyond_the_keys_is_named_beside_wrong_keys(tmp_path):
    """A case with a misspelt key and one without its file are both named.

    So are two devices of one serial, one of which has an unknown key.
    """
    path = tmp_path / "suite.toml"
    path.write_text(
        'name = "s"\n[[case]]\nmodel = "gone.onnx"\nthread = 2\n[[case]]\nmodel = "too.onnx"\n'
        "threads = [1, 0]\n"
    )
    assert [(mistake.section[-1], mistake.key) for mistake in files.check_file(path)[1]] == [
        ("1", "thread"), ("2", "threads"), ("1", "model"), ("2", "model"),
    ]  # fmt: skip
    path.write_text(
        'fleet = "f"\nserver.broker = "b"\n[device.a]\nserial = "1"\nbord = "pi5"\n[device.b]\n'
        'serial = "1"\n'
    )
    assert [mistake.what.split(":")[0] for mistake in files.check_file(path)[1]] == [
        "is not a key",
        "'a' and 'b' have the same serial '1'",
    ]


def test_a_file_that_is_no_toml_is_refused_with_its_line(tmp_path):
    """A missing file and an unknown kind of file are refused too."""
    path = tmp_path / "broken.toml"
    path.write_text('device = "pi"\nfleet = \n')
    with pytest.raises(ConfigError, match=r"not valid TOML.*line 2.*correct that line"):
        files.check_file(path)
    with pytest.raises(ConfigError, match="No such file"):
        files.check_file(tmp_path / "absent.toml")
    with pytest.raises(ConfigError, match=r"no file is called 'siute': did you mean suite\?"):
        files.sample("siute")


def test_a_certificate_names_the_device_whatever_the_file_states(tmp_path):
    """The device has the name by which the broker knows it."""
    (tmp_path / "identity.json").write_text('{"device": "certified", "fleet": "lab"}')
    path = tmp_path / "config.toml"
    path.write_text(
        f'device = "copied"\nbroker = "mqtts://b?certificate={tmp_path / "device.pem"}"\n'
    )
    by_name = {setting.key: (setting.value, setting.source) for setting in settings(path, {}, {})}
    assert by_name["device"] == ("certified", f"identity.json beside {tmp_path / 'device.pem'}")
