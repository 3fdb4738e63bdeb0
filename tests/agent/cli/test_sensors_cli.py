"""Facts about `edgemeter sensors`."""

import json
from contextlib import nullcontext

import pytest
from click.testing import CliRunner

from edgemeter.agent.base.errors import ConfigError, MeasurementError, UnavailableError
from edgemeter.agent.cli import sensor_checks
from edgemeter.agent.cli import sensors as cli_sensors
from edgemeter.agent.cli.sensors import sensors
from edgemeter.agent.power import detect, stored
from edgemeter.agent.power.detect import DetectedSensor
from edgemeter.agent.power.replay import ReplaySensor
from edgemeter.agent.power.stored import SensorCalibration
from tests.fixtures.machine_trees import rapl_zone, write
from tests.fixtures.tested_sensors import SENSORS, readings_of

TRACE = {"id": "bench", "scope": "module", "excludes": ["fan"], "t_s": [0, 1], "power_w": [2.5, 2.5]}


def run(*arguments):
    """Return the result of `edgemeter sensors ARGUMENTS`, errors raised."""
    return CliRunner().invoke(sensors, [str(argument) for argument in arguments], catch_exceptions=False)


@pytest.fixture
def trace(tmp_path):
    """Return a recorded trace of 2.5 W."""
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(TRACE))
    return path


@pytest.fixture
def configuration(tmp_path, trace):
    """Return a configuration with the trace as sensor `replay` and as one of the user's own name."""
    path = tmp_path / "config.toml"
    path.write_text(f'[sensors.replay]\npath = "{trace}"\n[sensors.bench]\ntype = "replay"\npath = "{trace}"\n')
    return path


def test_a_recording_is_read_into_one_document(trace):
    """The keys that bug reports are compared by."""
    document = json.loads(run("read", "--from", trace, "--json").stdout)
    assert document == {
        "sensor": "replay", "id": "replay:bench", "scope": "module", "excludes": ["fan"], "total_w": 2.5, "rails": [], "averaging": None,
        "warnings": [],
    }  # fmt: skip


def test_how_readings_follow_the_power_is_printed_with_its_source(trace, tmp_path):
    """An ACPI meter's interval, as its driver shows it; of a recording that does not state one it is unknown."""
    files = {"name": "power_meter", "power1_average": 5_000_000, "power1_average_interval": 2000, "power1_label": "system"}
    write(tmp_path / "tree", {f"sys/class/hwmon/hwmon0/{name}": f"{value}\n" for name, value in files.items()})
    assert "averaging: mean of 2 s (driver)" in run("read", "--from", tmp_path / "tree").stdout
    assert "averaging: unknown; a run estimates it" in run("read", "--from", trace).stdout


def test_a_counter_in_a_recording_holds_no_watts(tmp_path):
    """One state of it says nothing of power: null, with a warning, and never zero."""
    write(tmp_path, rapl_zone("intel-rapl:0", "package-0", 5_000))
    document = json.loads(run("read", "--from", tmp_path, "--as", "rapl", "--json").stdout)
    assert (document["total_w"], document["rails"]) == (None, [{"name": "package-0", "power_w": None}])
    assert "gives no power" in document["warnings"][0]


def test_the_settings_of_the_recorded_machine_are_its_configuration(tmp_path):
    """A shunt that is confirmed, of two chips the one that is meant; and a setting that is wrong is reported."""
    for number in (1, 2):
        files = {"name": "ina219", "in1_input": 5000, "curr1_input": 1000 * number, "shunt_resistor": 10000}
        write(tmp_path / "tree", {f"sys/class/hwmon/hwmon{number}/{name}": f"{value}\n" for name, value in files.items()})
    path = tmp_path / "config.toml"
    path.write_text('[sensors.ina2xx]\ndevice = "hwmon2"\nshunt_ohm = "0.1"\nscope = "board-input"\n')
    document = json.loads(run("read", "--from", tmp_path / "tree", "--config", path, "--json").stdout)
    assert document["total_w"] == pytest.approx(1.0)
    with pytest.raises(UnavailableError, match="there are 2 INA2xx chips"):
        run("read", "--from", tmp_path / "tree")
    path.write_text('[sensors.ina2xx]\nshunt_ohm = "R100"\n')
    with pytest.raises(ConfigError, match="shunt_ohm"):
        run("read", "--from", tmp_path / "tree", "--config", path)


def test_an_unreadable_recording_is_an_error_in_json_too(trace):
    """For machines on standard output, for people as one line on standard error, with an exit status."""
    trace.write_text('{"t_s": [0, 1], "power_w": [1')
    result = CliRunner().invoke(sensors, ["read", "--from", str(trace), "--json"])
    assert isinstance(result.exception, ConfigError)
    assert "not a power recording" in json.loads(result.stdout)["error"]


def test_a_named_sensor_is_read_live(configuration):
    """With its settings; a name of the user's own takes its type from them."""
    for name in ("replay", "bench"):
        printed = run("read", name, "--config", configuration).stdout
        assert "replay:bench: 2.5000 W (module)" in printed
        assert "excludes fan" in printed


def test_an_absent_sensor_is_reported():
    """Reading was asked for by name."""
    result = CliRunner().invoke(sensors, ["read", "replay"])
    assert isinstance(result.exception, (UnavailableError, ConfigError))
    assert "set path" in str(result.exception)


def test_the_list_shows_watts_and_what_a_run_would_use(configuration):
    """A replay is shown where it is configured, and never chosen by itself."""
    document = json.loads(run("--config", configuration, "--json").stdout)
    rows = {row["sensor"]: row for row in document["sensors"]}
    assert rows["replay"]["total_w"] == rows["bench"]["total_w"] == 2.5
    assert document["chosen"] not in ("replay", "bench")
    printed = run("--config", configuration, "--all").stdout
    assert "2.500" in printed
    assert "excludes" in printed


def test_an_empty_list_names_the_option_that_shows_what_was_searched(monkeypatch):
    """And not where that is shown."""
    absent = [DetectedSensor("shelly", None, "no shelly is known: set address", is_absent=True)]
    monkeypatch.setattr(detect, "detect_sensors", lambda _: absent)
    assert "sensors --all" in run().stdout
    assert "sensors --all" not in run("--all").stdout


def test_the_sensors_that_the_configuration_names_are_what_a_run_would_use(configuration):
    """A replay too, when it was named; none of them is called unreadable."""
    unsaid = run("--config", configuration).stdout
    assert "cannot be read" not in unsaid
    configuration.write_text('power = ["replay", "bench"]\n' + configuration.read_text())
    document = json.loads(run("--config", configuration, "--json").stdout)
    assert document["chosen"] == "replay,bench"
    assert "set as `power` in the configuration" in run("--config", configuration).stdout


def test_what_is_shown_is_corrected_as_in_a_run(configuration, trace, tmp_path, monkeypatch):
    """A calibration of this board counts; a damaged one is reported with the sensor, and the others are still shown."""
    monkeypatch.setenv("EDGEMETER_HOME", str(tmp_path))
    monkeypatch.setattr(detect, "board_key", lambda: "a board")
    sensor = ReplaySensor(str(trace))
    uncertainties = {"gain_u_ratio": 0.01, "offset_u_w": 0.02, "residual_w": 0.01, "lowest_w": 1.0, "highest_w": 5.0, "steps": 6}
    about = {"kind": "gain", "board": "a board", "sensor": sensor.describe().id, "scope": "module", "reference": "r", "made_at": "t"}
    fitted = SensorCalibration(gain=1.2, offset_w=0.5, **uncertainties, **about)
    path = stored.save_calibration(fitted)
    assert json.loads(run("read", "bench", "--config", configuration, "--json").stdout)["total_w"] == pytest.approx(3.5)
    rows = json.loads(run("--config", configuration, "--json").stdout)["sensors"]
    assert {row["sensor"]: row.get("total_w") for row in rows}["bench"] == pytest.approx(3.5)
    path.write_text("{")
    rows = {row["sensor"]: row for row in json.loads(run("--config", configuration, "--json").stdout)["sensors"]}
    assert "is damaged" in rows["bench"]["error"]


@pytest.fixture
def two_traces(tmp_path, monkeypatch):
    """Return a configuration of two sensors of one type, of which `good` shows 1.2 times what `cheap` shows, and a home of our own."""
    monkeypatch.setenv("EDGEMETER_HOME", str(tmp_path / "home"))
    lines = []
    for name, gain in (("cheap", 1.0), ("good", 1.2)):
        path = tmp_path / f"{name}.json"
        # A sawtooth of three minutes: each of the short steps below sees another power.
        shape = {"t_s": [0, 180], "power_w": [2.0 * gain, 20.0 * gain], "period_ms": 10.0, "gain_u_ratio": 0.005}
        path.write_text(json.dumps({"id": name, "scope": "module", **shape}))
        lines.append(f'[sensors.{name}]\ntype = "replay"\npath = "{path}"\n')
    config = tmp_path / "config.toml"
    config.write_text("".join(lines))
    return config


@pytest.mark.slow
def test_a_calibration_is_made_kept_and_used(two_traces):
    """Against another sensor, over real load steps; what is opened later shows what the reference shows."""
    steps = ("--steps", 3, "--settle", 3, "--seconds", 1.5)
    result = run("calibrate", "cheap", "--against", "good", *steps, "--config", two_traces, "--json")
    document = json.loads(result.stdout)
    assert document["gain"] == pytest.approx(1.2, rel=0.05)
    assert document["gain_u_ratio"] >= 0.005
    assert len(document["points"]) == 3
    settings = {name: {"type": "replay", "path": str(two_traces.parent / f"{name}.json")} for name in ("cheap", "good")}
    with detect.open_sensors("cheap,good", (), settings) as (opened, _):
        power_w = {name: sensor.read().power_w for name, sensor in opened.items()}
    assert power_w["cheap"] == pytest.approx(2.0 * document["gain"] + document["offset_w"], rel=0.01)
    assert power_w["good"] == pytest.approx(2.4, rel=0.01)


def test_one_source_of_readings_has_to_be_named(two_traces):
    """To calibrate: a sensor or typed readings, not both, none or itself, of a scope that there is; to read: a name or a recording."""
    both, either = ("calibrate", "cheap", "--against", "good", "--typed"), ("calibrate", "cheap")
    for arguments in (both, either, ("read",), ("read", "replay", "--from", str(two_traces))):
        assert CliRunner().invoke(sensors, arguments).exit_code == 2, arguments
    for arguments, text in ((("--against", "cheap"), "its own reference"), (("--typed", "--reference-scope", "all"), "no scope 'all'")):
        result = CliRunner().invoke(sensors, ["calibrate", "cheap", *arguments, "--config", str(two_traces)])
        assert text in str(result.exception)


def test_what_cannot_become_a_calibration_is_refused_before_any_load(two_traces):
    """A meter at the wall is no reference for a module, without a name for what lies between."""
    typed = ("calibrate", "cheap", "--typed", "--reference-scope", "wall-ac", "--config", str(two_traces))
    result = CliRunner().invoke(sensors, typed, input="")
    assert isinstance(result.exception, MeasurementError)
    assert "--promotion NAME" in str(result.exception)
    assert "loading" not in result.output


def test_a_typed_reading_is_taken_as_the_display_shows_it():
    """Its last digit says how finely; what is not a number of watts is asked for again."""
    with CliRunner().isolation(input="nan\n5,2\n1e3\n5.20\n") as (_, output, *_):
        assert sensor_checks._ask(0.5) == (5.2, 0.01)
    assert output.getvalue().decode().count("is not a number of watts") == 3


def test_a_promotion_that_was_never_made_is_refused(two_traces):
    """By the name that it was asked for."""
    settings = {"cheap": {"type": "replay", "path": str(two_traces.parent / "cheap.json")}}
    with pytest.raises(ConfigError, match="'desk'"), detect.open_sensors("cheap+desk", (), settings):
        pass


def test_a_configured_sensor_that_is_absent_is_listed_without_being_asked_for(tmp_path):
    """Its table has no address: it is shown like one that cannot be read, and in the line that names which one a run uses."""
    path = tmp_path / "config.toml"
    path.write_text('[sensors.shelly]\nuser = "me"\n')
    printed = run("--config", path).stdout
    assert "shelly: no shelly is known: set address" in printed
    assert "shelly is configured and absent: no shelly is known" in printed
    assert "tasmota" not in printed


def test_a_sensor_is_checked_and_the_test_is_listed_and_used(tmp_path, configuration, monkeypatch):
    """Readings of a sensor that hangs: found, stored but for a test without load, listed, and a warning to later runs."""
    monkeypatch.setenv("EDGEMETER_HOME", str(tmp_path))
    monkeypatch.setattr(sensor_checks, "storing_board_key", lambda _: "board")
    for module in (cli_sensors, detect):
        monkeypatch.setattr(module, "board_key", lambda: "board")
    readings = readings_of(SENSORS["hangs throughout"], 0, 30.0)
    monkeypatch.setattr(sensor_checks, "read_under_load", lambda *_: readings)
    monkeypatch.setattr(sensor_checks, "switched_load", lambda: nullcontext(None))
    result = run("check", "replay", "--config", configuration, "--json")
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert (document["sees_load"], document["delay_s"]["reason"]) == (False, "it showed one value only")
    plain = run("check", "replay", "--config", configuration)
    assert "delay, all of it   not to be told: it showed one value only" in plain.stdout
    assert "warning: it showed one value only: it hangs" in plain.stderr
    idle = run("check", "replay", "--config", configuration, "--no-load")
    assert "nothing is stored" in idle.stderr
    listed = run("--config", configuration)
    assert f"replay: self-test of {document['made_at'][:10]}" in listed.stdout
    assert "it hangs (restart it)" in listed.stdout
