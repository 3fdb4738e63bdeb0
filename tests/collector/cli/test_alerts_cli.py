"""`edgemeter trend alerts`: checked, listed, sent, retried and dropped."""

import json
import time

import msgspec
import pytest
from click.testing import CliRunner

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract.record_conditions import Verdict
from edgemeter.agent.ledger.sqlite_ledger import SqliteLedger
from edgemeter.collector.cli import alerts as alerts_commands
from edgemeter.collector.cli.alerts import alerts
from tests.fixtures.comparison_factory import document
from tests.fixtures.listeners import http_listener
from tests.fixtures.series_factory import DAY_NS, FIRST_DAY, make_days, noisy


@pytest.fixture
def store(tmp_path, monkeypatch):
    """Return the path of a store whose one board stepped two weeks ago; the clock stands a day after its last run."""
    monkeypatch.setattr(time, "time_ns", lambda: (FIRST_DAY + 71) * DAY_NS)
    path = tmp_path / "runs.json"
    path.write_bytes(document(*make_days(noisy(100, 70, step_at=55, step_ratio=1.09))))
    return str(path)


def run(*arguments):
    """Run the command; an error of ours comes through."""
    return CliRunner().invoke(alerts, list(arguments), catch_exceptions=False)


def test_a_dry_run_names_where_it_would_send_and_writes_nothing(store, tmp_path):
    """Neither an index nor a file of alerts beside the ledger, and nothing is sent."""
    rules = tmp_path / "alerts.toml"
    rules.write_text(
        "[[rule]]\nname = 's'\nkind = 'step'\nchannels = ['c']\n[[channel]]\nname = 'c'\nkind = 'webhook'\nurl = 'http://127.0.0.1:1'\n"
    )
    SqliteLedger(tmp_path / "ledger.sqlite").close()
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    result = run("check", "--rules", str(rules), "--ledger", store, "--dry-run")
    assert (result.exit_code, "would send" in result.stdout) == (0, True)
    assert run("check", "--ledger", str(tmp_path / "ledger.sqlite"), "--dry-run").exit_code == 0
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before
    assert run("list", "--ledger", store).stdout == ""


def test_a_check_says_when_no_new_run_can_be_judged(tmp_path, store):
    """A board whose newest runs are all disturbed opens no alert, and is not well for that."""
    disturbed = Verdict(state="disturbed")
    runs = [msgspec.structs.replace(run, verdict=disturbed) for run in make_days(noisy(100, 9))]
    path = tmp_path / "disturbed.json"
    path.write_bytes(document(*runs))
    words = "no run of the newest 7 days is ok"
    result = run("check", "--ledger", str(path), "--dry-run")
    assert (words in result.stderr, result.stdout) == (True, "judged 1 series of 1 metric over 9 days: no alert\n")
    result = run("check", "--ledger", store, "--dry-run")
    assert words not in result.stderr
    assert result.stdout.splitlines()[-1] == "judged 1 series of 4 metrics over 70 days: 1 alert open"
    assert run("check", "--ledger", store).stdout.splitlines()[-1] == result.stdout.splitlines()[-1]


def test_an_alert_goes_its_way_on_the_command_line(store):
    """Checked, listed, dismissed, and it does not come again; the health of its rule says so."""
    assert "opened" in run("check", "--ledger", store).stdout
    (energy, *_) = (
        alert
        for alert in json.loads(run("list", "--ledger", store, "--format", "json").stdout)["alerts"]
        if "energy_gross_mj" in {part["facts"]["metric"] for part in (alert, *alert["members"]) if "metric" in part["facts"]}
    )
    assert (energy["state"], energy["severity"]) == ("open", "critical")
    assert run("dismiss", str(energy["number"]), "--reason", "moved", "--ledger", store).exit_code == 0
    second = json.loads(run("check", "--ledger", store, "--format", "json").stdout)
    assert [change for change in second["changes"] if change["alert"]["number"] == energy["number"]] == []
    (rule, *_) = (
        rule_health
        for rule_health in json.loads(run("health", "--ledger", store, "--format", "json").stdout)["rules"]
        if rule_health["rule"] == "confirmed step"
    )
    assert rule["dismissed"] == 1
    assert "moved" in run("list", "--all", "--ledger", store, "--format", "json").stdout
    assert "confirmed step" in run("health", "--ledger", store).stdout
    assert "dismissed" in run("list", "--all", "--ledger", store).stdout


def unreadable(*_):
    """Fail as a damaged ledger does."""
    raise ConfigError("damaged")


@pytest.mark.services
def test_what_waits_is_listed_dropped_and_sent_again_also_where_the_ledger_cannot_be_read(store, tmp_path, monkeypatch):
    """With the reason and the time of the next try; the check fails as long as anything waits, and sends before rules are evaluated."""
    rules = tmp_path / "alerts.toml"
    with http_listener() as server:
        server.status = 503
        url = f"http://127.0.0.1:{server.server_port}"
        channels = "".join(f"[[channel]]\nname = '{name}'\nkind = 'webhook'\nformat = 'slack'\nurl = '{url}'\n" for name in ("a", "b"))
        rules.write_text(f"[[rule]]\nname = 's'\nkind = 'step'\nchannels = ['a', 'b']\n{channels}")
        first, second = (run("check", "--rules", str(rules), "--ledger", store) for _ in range(2))
        assert (first.exit_code, second.exit_code) == (1, 1)
        assert "undelivered to a since" in second.stderr
        assert "503" in second.stderr
        assert len(server.kept) == 2
        listed = json.loads(run("list", "--ledger", store, "--format", "json").stdout)["waiting"]
        assert {(entry["channel"], entry["tries"], entry["state"]) for entry in listed} == {("a", 1, "due"), ("b", 1, "due")}
        assert "503" in run("list", "--ledger", store).stdout
        assert run("drop", str(listed[0]["notice"]), "--ledger", store).exit_code == 0
        with pytest.raises(ConfigError, match="notice"):
            run("drop", "999", "--ledger", store)
        assert run("drop", "--ledger", store).exit_code == 2
        server.status = 200
        server.kept.clear()
        with monkeypatch.context() as patched:
            patched.setattr(alerts_commands, "open_history", unreadable)
            with pytest.raises(ConfigError, match="damaged"):
                run("check", "--rules", str(rules), "--ledger", store, "--retry")
        assert len(server.kept) == 1
        assert json.loads(run("list", "--ledger", store, "--format", "json").stdout)["waiting"] == []
