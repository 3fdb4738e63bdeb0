import json

import pytest
from click.testing import CliRunner

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.cli.sensors import sensors

TRACE = {
    "id": "bench",
    "scope": "module",
    "excludes": ["fan"],
    "t_s": [0, 1],
    "power_w": [2.5, 2.5],
}


def run(*arguments):
    """Return the result of `edgemeter energy sensors ARGUMENTS`, errors raised."""
    return CliRunner().invoke(
        sensors, [str(argument) for argument in arguments], catch_exceptions=False
    )


@pytest.fixture
def trace(tmp_path):
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(TRACE))
    return path


@pytest.fixture
def configuration(tmp_path, trace):
    """Return a configuration with the trace as sensor `replay` and under a name of the user's."""
    path = tmp_path / "config.toml"
    path.write_text(
        f'[sensors.replay]\npath = "{trace}"\n[sensors.bench]\ntype = "replay"\npath = "{trace}"\n'
    )
    return path


@pytest.mark.services
def test_a_recording_without_scope_that_runs_are_to_use_is_named_with_the_remedy(tmp_path):
    """The list does not say that a run would use it."""
    (tmp_path / "trace.csv").write_text("t_s,power_w\n0,1\n1,2\n")
    config = tmp_path / "config.toml"
    config.write_text(f'power = ["replay"]\n[sensors.replay]\npath = "{tmp_path / "trace.csv"}"\n')
    result = run("--config", config)
    assert result.exit_code == 1
    assert "states no scope: set scope = " in result.stdout
    assert (
        result.stdout.splitlines()[-1]
        == "no run can be measured: `power` in the configuration names replay"
    )


def test_a_sensor_is_read_into_one_document(configuration):
    """The document has the keys by which bug reports are compared.

    How the readings follow the power is unknown where nothing states it.
    """
    document = json.loads(
        run("read", "bench", "--config", configuration, "--format", "json").stdout
    )
    assert document == {
        "sensor": "bench", "id": "replay:bench", "scope": "module", "excludes": ["fan"],
        "total_w": 2.5, "rails": [], "delay_ms": None,
        "warnings": [],
    }  # fmt: skip
    printed = run("read", "replay", "--config", configuration).stdout
    assert "replay:bench: 2.5000 W (module)" in printed


def test_an_unreadable_sensor_is_an_error_in_json_too(configuration, trace):
    """Standard output has the error as JSON, standard error as one line.

    The command exits with a failure's status.
    """
    trace.write_text('{"t_s": [0, 1], "power_w": [1')
    result = CliRunner().invoke(
        sensors, ["read", "bench", "--config", str(configuration), "--format", "json"]
    )
    assert isinstance(result.exception, ConfigError)
    assert "not a power recording" in json.loads(result.stdout)["error"]


@pytest.mark.services
def test_the_list_shows_watts_and_what_a_run_would_use(configuration):
    """A replay is shown where it is configured, and chosen only where it was named.

    A wrong key is an error of its sensor and makes the command fail.
    """
    document = json.loads(run("--config", configuration, "--format", "json").stdout)
    rows = {row["sensor"]: row for row in document["sensors"]}
    assert rows["replay"]["total_w"] == rows["bench"]["total_w"] == 2.5
    assert document["chosen"] not in ("replay", "bench")
    printed = run("--config", configuration, "--all").stdout
    assert "2.500" in printed
    assert "excludes" in printed
    configuration.write_text(
        'power = ["replay", "bench"]\n'
        + configuration.read_text()
        + '[sensors.rapl]\nscopee = "1"\n'
    )
    listed = run("--config", configuration, "--format", "json")
    document = json.loads(listed.stdout)
    assert (listed.exit_code, document["chosen"]) == (1, "replay,bench")
    assert "scopee" in next(row["error"] for row in document["sensors"] if row["sensor"] == "rapl")
