import json
import signal
import subprocess
import sys

import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.cli import energy as energy_cli
from tests.fixtures.command import edgemeter
from tests.fixtures.rows import table_row
from tests.fixtures.snapshot import same_as_snapshot


def run(*arguments):
    return edgemeter("energy", *arguments)


def run_apart(*arguments):
    command = [sys.executable, "-m", "edgemeter.agent.cli.main", "energy", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture
def configuration(tmp_path):
    """Return a configuration with a replayed sensor of 5 W that is read every 20 s."""
    trace = tmp_path / "trace.json"
    trace.write_text(
        json.dumps({"scope": "module", "period_ms": 20000, "t_s": [0, 1], "power_w": [5, 5]})
    )
    path = tmp_path / "config.toml"
    path.write_text(f'power = ["replay"]\n[sensors.replay]\npath = "{trace}"\n')
    return path


@pytest.mark.services
def test_the_exit_status_is_the_commands_and_its_output_is_not_in_ours(configuration):
    """The output of the measured command goes to standard error.

    A command that lasts for one reading has no energy, but a reason.
    """
    result = run_apart(
        "--idle",
        0,
        "--config",
        configuration,
        "--format",
        "json",
        "--",
        sys.executable,
        "-c",
        "print('hello'); raise SystemExit(3)",
    )
    assert result.returncode == 3
    assert json.loads(result.stdout)["energies"]["energy"] is None
    assert "it gave no two readings" in json.loads(result.stdout)["energies"]["reason"]
    assert "hello" in result.stderr


@pytest.mark.services
def test_a_command_that_is_not_there_is_one_line(configuration):
    """The error names what was tried, before any time is spent on idle power."""
    result = run_apart("--idle", 100, "--config", configuration, "--", "no-such-command", "-x")
    assert result.returncode == 2
    assert "idling" not in result.stderr
    assert result.stderr.splitlines()[-1].startswith("edgemeter: cannot run 'no-such-command'")


@pytest.mark.services
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupt_ends_the_command_that_is_measured(configuration, number, status):
    """The command gets a second for its own cleaning up."""
    code = (
        "import signal, sys, time; signal.signal(15, lambda *_: sys.exit(print('saved'))); "
        "print('begun', flush=True); time.sleep(600)"
    )
    words = ["--idle", "0", "--config", str(configuration), "--", sys.executable, "-c", code]
    command = [sys.executable, "-m", "edgemeter.agent.cli.main", "energy", *words]
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert any(line == "begun\n" for line in process.stderr)
        process.send_signal(number)
        _, err = process.communicate()
    assert (process.returncode, err.splitlines()[0]) == (status, "saved")
    assert err.splitlines()[-1].startswith("edgemeter: ")


def test_a_length_of_time_has_a_unit():
    """Seconds, minutes, hours and days are read, and the refusal lists the forms."""
    for text, seconds in [("90s", 90), ("5m", 300), ("2h", 7200), ("1d", 86400), (" 1.5m ", 90)]:
        assert energy_cli.seconds(text) == seconds, f"{text!r}"
    for text in ["5", "m", "-5m", "0s", "5 minutes", ""]:
        with table_row(text), pytest.raises(ConfigError, match="30s, 5m, 2h or 1d"):
            energy_cli.seconds(text)


def test_the_energy_of_a_log_is_printed_with_its_interval_and_coverage(tmp_path):
    """The result comes as text or JSON, and a command beside the log is refused."""
    (tmp_path / "gpu.csv").write_text(
        "timestamp, power.draw [W]\n2026/05/22 11:00:00, 2 W\n2026/05/22 11:00:02, 4 W\n"
    )
    printed = run("--from", tmp_path / "gpu.csv", "--between", "11:00:00", "11:00:02")
    same_as_snapshot("energy-of-a-log", printed.stdout)
    assert (
        json.loads(run("--from", tmp_path / "gpu.csv", "--format", "json").stdout)["energy_j"] == 6
    )
    for arguments in ((), ("--from", tmp_path / "gpu.csv", "--", "true")):
        assert "--from" in run(*arguments).stderr
