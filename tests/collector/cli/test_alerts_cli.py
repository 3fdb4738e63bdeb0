import json
import time

import msgspec
import pytest
from click.testing import CliRunner

from edgemeter.agent.contract.record_conditions import Verdict
from edgemeter.collector.cli.alerts import alerts
from tests.fixtures.comparison_factory import document_at
from tests.fixtures.listeners import real_http
from tests.fixtures.series_factory import DAY_NS, FIRST_DAY, make_days, noisy


@pytest.fixture
def store(tmp_path, monkeypatch):
    """Return the path of a store whose one board stepped two weeks ago.

    The clock stands a day after its last run.
    """
    monkeypatch.setattr(time, "time_ns", lambda: (FIRST_DAY + 71) * DAY_NS)
    return str(
        document_at(tmp_path / "runs.json", *make_days(noisy(100, 70, step_at=55, step_ratio=1.09)))
    )


def run(*arguments):
    return CliRunner().invoke(alerts, list(arguments), catch_exceptions=False)


def test_a_check_says_when_no_new_run_can_be_judged(tmp_path, store):
    """A board whose newest runs are all disturbed opens no alert, and is not reported as well."""
    disturbed = Verdict(state="disturbed")
    runs = [msgspec.structs.replace(run, verdict=disturbed) for run in make_days(noisy(100, 9))]
    path = document_at(tmp_path / "disturbed.json", *runs)
    words = "no run of the newest 7 days is ok"
    result = run("check", "--ledger", str(path))
    assert (words in result.stderr, result.stdout) == (True, "judged 1 series: no alert\n")
    result = run("check", "--ledger", store)
    assert words not in result.stderr
    assert result.stdout.splitlines()[-1] == "judged 1 series: 1 alert open"


@pytest.mark.services
@pytest.mark.needs(module="apprise")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_an_alert_is_listed_with_what_its_channels_know(store, tmp_path):
    """The check fails, with the reason, as long as anything is undelivered.

    The list shows it by channel.
    """
    rules = tmp_path / "alerts.toml"
    with real_http() as server:
        server.status = 503
        url = server.url.replace("http", "json")
        rules.write_text(
            "[[rule]]\nname = 's'\nkind = 'step'\nchannels = ['a']\n[[channel]]\nname = 'a'\n"
            f"url = '{url}/secret'\n"
        )
        result = run("check", "--rules", str(rules), "--ledger", store)
        assert (
            result.exit_code,
            "1 alert undelivered to a:" in result.stderr,
            "503" in result.stderr,
        ) == (1, True, True)
        assert "secret" not in result.output
        (alert,) = json.loads(run("list", "--ledger", store, "--format", "json").stdout)["alerts"]
        assert (alert["number"], alert["closed_ns"], alert["severity"]) == (1, None, "warning")
        assert (alert["channels"][0]["state"], "503" in alert["channels"][0]["error"]) == (
            None,
            True,
        )
        assert "503" in run("list", "--ledger", store).stdout
        server.status = 200
        result = run("check", "--rules", str(rules), "--ledger", store)
        assert (result.exit_code, "sent 1 notification to a" in result.stdout) == (0, True)
        assert "sent" not in run("check", "--rules", str(rules), "--ledger", store).stdout
        assert "a: open, sent" in " ".join(run("list", "--ledger", store).stdout.split())
        assert (
            "opened [info] test of Edgemeter"
            in run("check", "--test", "--rules", str(rules), "--ledger", store).stdout
        )
        assert (
            "closed [info] test of Edgemeter"
            in run("check", "--rules", str(rules), "--ledger", store).stdout
        )
