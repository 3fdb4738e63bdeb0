"""The journal keeps what the server was told and what has been settled."""

import pytest

from edgemeter.agent.contract import orders
from edgemeter.agent.contract.orders import Logs, Order, ReportReceipt
from edgemeter.agent.jobs import journal
from edgemeter.agent.jobs.journal import Journal


@pytest.fixture
def path(tmp_path):
    return tmp_path / journal.JOURNAL_FILE


@pytest.fixture
def book(path):
    with Journal(path) as journal_file:
        yield journal_file


def order(job="job-1", attempt=1, version=3, work=None):
    return Order(job=job, attempt=attempt, version=version, work=work or Logs(), timeout_s=60.0)


def reports(book):
    return [orders.decode_report(report) for _, report in book.due(7)]


def acknowledge(book, version, job="job-1"):
    book.noted(ReportReceipt(noted=job, attempt=1, version=version))


def test_a_report_is_the_same_bytes_until_it_is_acknowledged(book, path):
    """Later events and a restart change only the next report.

    The server may hold this one already.
    """
    number = book.add(order())
    first = book.due(7)
    book.begins(number, "boot")
    book.ends(number, "done")
    assert book.due(8) == first
    book.close()
    reopened = Journal(path)
    assert reopened.due(9) == first
    acknowledge(reopened, 4)
    (following,) = reports(reopened)
    assert (following.state, following.expected_version) == ("done", 4)
    acknowledge(reopened, 5)
    assert reports(reopened) == []
    assert not reopened.has_due()
    reopened.close()


def test_an_acknowledgement_of_an_earlier_version_is_none(book):
    """An acknowledgement of an unknown job does not count either."""
    book.add(order())
    due = book.due(7)
    acknowledge(book, 3)
    acknowledge(book, 9, "other")
    assert book.due(7) == due
    acknowledge(book, 12)
    assert reports(book) == []


def test_what_has_ended_stays_as_it_ended(book):
    """The first end counts, whether the job's process or the device recorded it."""
    number = book.add(order())
    assert book.begins(number, "boot")
    assert not book.begins(number, "boot")
    assert book.ends(number, "cancelled", "by the server")
    assert not book.ends(number, "done")
    entry = book.read(number)
    assert (entry.state, entry.reason) == ("cancelled", "by the server")


def test_runs_stand_in_the_report(book):
    """The report lists each stored run, also of a job that failed afterwards."""
    number = book.add(order())
    book.begins(number, None)
    book.kept(number, "run-1")
    book.kept(number, "run-2")
    book.ends(number, "failed", "two\nlines", text="x" * 300_000)
    (report,) = reports(book)
    assert report.runs == ("run-1", "run-2")
    assert report.reason == "two lines"
    assert len(report.text) == 200_000


def test_only_what_ended_and_was_reported_is_forgotten(book, monkeypatch):
    """The journal stays small, but open and unreported orders are kept."""
    monkeypatch.setattr(journal, "KEPT_EXECUTIONS", 3)
    open_one = book.add(order("open"))
    untold = book.add(order("untold"))
    book.ends(untold, "done")
    for index in range(10):
        job = f"told-{index}"
        book.ends(book.add(order(job)), "done")
        book.due(7)
        acknowledge(book, 4, job)
    assert [entry.place for entry in book.latest(99)][-2:] == [untold, open_one]
    assert len(book.latest(99)) <= 7


def test_long_texts_are_kept_of_few_orders(book, monkeypatch):
    """An old text is dropped only once the server has received it."""
    monkeypatch.setattr(journal, "KEPT_TEXTS", 2)
    for index in range(6):
        job = f"doctor-{index}"
        book.ends(book.add(order(job)), "done", text="x" * 1000)
        book.due(7)
        if index:
            acknowledge(book, 4, job)
    book.add(order("last"))
    assert [entry.order.job for entry in book.latest(9) if entry.text] == ["doctor-5", "doctor-0"]
