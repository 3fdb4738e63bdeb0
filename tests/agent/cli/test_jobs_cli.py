import json

import msgspec
import pytest
from click.testing import CliRunner

from edgemeter.agent.cli.main import cli
from edgemeter.agent.contract.orders import Content, Logs, Measure, Order
from edgemeter.agent.jobs import journal
from edgemeter.agent.jobs.journal import Journal
from edgemeter.agent.jobs.repeating import RepeatedOrders

MEASURE = Measure(suite=Content(sha256="a" * 64, size_bytes=10, name="nightly.toml"))


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("EDGEMETER_HOME", str(tmp_path))
    return tmp_path


def jobs_output(*arguments):
    result = CliRunner().invoke(cli, ["agent", "jobs", *arguments], env={"COLUMNS": "200"})
    assert result.exit_code == 0, result.output
    return result.stdout


def order(job, work):
    return Order(job=job, attempt=1, version=0, work=work, timeout_s=60.0)


def test_orders_and_what_is_repeated_are_shown(home):
    """The latest order comes first, each with its outcome and the reason.

    A terminal code in a reason is not printed as one. Without any order no journal is made.
    """
    assert json.loads(jobs_output("--format", "json")) == {"jobs": []}
    assert not list(home.iterdir())
    book = Journal(home / journal.JOURNAL_FILE)
    nightly = msgspec.structs.replace(MEASURE, at="02:00")
    RepeatedOrders(book).begin(book.add(order("nightly", nightly)), nightly)
    book.ends(book.add(order("logs-1", Logs())), "failed", "it [bold]is\x1b[2J so")
    row = book.add(order("measure-1", MEASURE))
    book.begins(row, "boot")
    book.kept(row, "run-1")
    book.ends(row, "done")
    book.close()
    text = jobs_output()
    assert text.index("measure-1") < text.index("logs-1")
    assert "it [bold]is" in text
    assert "\x1b" not in text
    assert "nightly (measure): each day at 02:00, next " in text
    document = json.loads(jobs_output("--format", "json", "--last", "1"))
    only, repeated = document["jobs"]
    expected = {"job": "measure-1", "kind": "measure", "state": "done", "runs": ["run-1"]}
    assert expected.items() <= only.items()
    assert (repeated["job"], repeated["state"]) == ("nightly", "repeating")
