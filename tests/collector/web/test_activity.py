"""Test the current measurements.

A lost device measures nothing, an old report is called so, and a page is updated without a reload.
"""

import time

import msgspec
import pytest

from edgemeter.agent.contract import messages
from edgemeter.agent.contract.messages import (
    ACTIVITY_STALE_NS,
    Activity,
    DeviceState,
    JobProgress,
    Measuring,
)
from edgemeter.agent.ledger.presence import DevicePresence, PresenceChange, RetainedMessage
from edgemeter.collector.web import one_file
from edgemeter.collector.web.activity import activities_of
from edgemeter.collector.web.events import TrendEvents
from edgemeter.collector.web.one_file import FileChoice
from edgemeter.collector.web.view import ViewRequest
from tests.fixtures.comparison_factory import make_reference, make_run
from tests.fixtures.hostile import MARKUP
from tests.fixtures.ledgers import fill, report
from tests.fixtures.rows import table_row
from tests.fixtures.served_page import page_of, served, text_of

NOW_NS = 1_800_000_000 * 10**9
HOUR_NS = 3600 * 10**9
MEASURING = Measuring(
    suite="nightly",
    case="tiny-detector.tflite litert 4 threads",
    run=3,
    runs=12,
    failed=1,
    job="measure-1",
)
PROGRESS = JobProgress(
    job="autumn",
    title="t",
    state="running",
    wave=2,
    waves=3,
    done=12,
    failed=1,
    running=3,
    waiting=24,
)


def activity(measuring=MEASURING, received_ns=NOW_NS):
    """Return what a collector keeps of the device's activity."""
    return RetainedMessage(
        "edgemeter/v1/lab/pi-1/activity",
        messages.encode_message(Activity(session=5, measuring=measuring)),
        received_ns,
    )


def job(received_ns=NOW_NS, **changes):
    """Return what a collector keeps of a job's progress."""
    progress = messages.encode_message(msgspec.structs.replace(PROGRESS, **changes))
    return RetainedMessage("edgemeter/job/autumn/state", progress, received_ns)


def present(state, session=5, since_ns=NOW_NS - 1):
    """Return a device as its state says; numbers of sessions have no order."""
    return DevicePresence("lab", "pi-1", state, session, None, since_ns)


@pytest.fixture
def ledger(tmp_path):
    return fill(
        tmp_path / "ledger.sqlite",
        [make_run(id="first", device="pi-1"), make_reference(id="reference")],
    )


@pytest.fixture
def page(ledger):
    return page_of(ledger)


def test_a_device_measures_while_the_process_that_reported_it_is_there():
    """A device that is lost does not measure for ever.

    Neither does one whose agent was started again.
    """
    for presence, is_shown in (
        ([], True),
        ([present("online")], True),
        ([present(None)], True),
        # `edgemeter run` beside the agent has a session of its own.
        ([present("online", session=4)], True),
        ([present("online", session=6)], True),
        # The process was followed by another one.
        ([present("online", session=4, since_ns=NOW_NS + 1)], False),
        ([present("online", session=6, since_ns=NOW_NS + 1)], False),
        # Its line broke and came back.
        ([present("online", since_ns=NOW_NS + 1)], True),
        ([present("lost")], False),
        ([present("offline")], False),
        ([present("revoked", session=0)], False),
    ):
        with table_row(presence):
            activities = activities_of([activity()], presence, NOW_NS)
            assert [device.device for device in activities.devices] == ["pi-1"] * is_shown

    # The state between two sessions; and a message that is not known is no reason to show no page.
    for message in (
        activity(measuring=None),
        RetainedMessage("edgemeter/v1/lab/pi-1/activity", b"{}", 5),
    ):
        assert activities_of([message], [present("online")], NOW_NS).key == "nothing"


def test_what_nobody_reports_on_is_called_stale_and_a_job_is_shown_for_a_day_after_its_end():
    """The time of receipt decides: a device's own clock plays no part."""
    assert not activities_of([activity()], [], NOW_NS + ACTIVITY_STALE_NS).devices[0].is_stale
    assert activities_of([activity()], [], NOW_NS + ACTIVITY_STALE_NS + 1).devices[0].is_stale
    ended = {"running": 0, "waiting": 0}
    for state, counts, age_h, expected in (
        ("running", {}, 25, [True]),
        ("running", {}, 23, [False]),
        ("done", ended, 23, [False]),
        ("done", ended, 25, []),
        # It waits for somebody, or its devices repeat it by themselves: nobody has to report on it.
        ("stopped", {"running": 0}, 25, [False]),
        ("running", ended | {"repeating": 9}, 25, [False]),
    ):
        with table_row(state, counts, age_h):
            activities = activities_of([job(state=state, **counts)], [], NOW_NS + age_h * HOUR_NS)
            assert [job_activity.is_stale for job_activity in activities.jobs] == expected


def test_overview_and_device_show_what_is_measured(page, ledger):
    """They show the case, the number of its run, the suite, failures, the job and the receipt.

    The job has its counts.
    """
    at_ns = time.time_ns()
    report(ledger, activity(received_ns=at_ns), job(received_ns=at_ns))
    overview, measured = (
        text_of(page, "/"),
        (
            "tiny-detector.tflite litert 4 threads: run 3 of 12 of suite nightly, 1 failed "
            "before, job measure-1"
        ),
    )
    assert measured in overview
    assert (
        "t: running, wave 2 of 3; 12 done, 1 failed, 3 running, 24 waiting of 40; as of "
        in overview
    )
    assert measured in text_of(page, "/device?device=pi-1")
    assert measured not in text_of(page, "/device?device=server-1")
    # A file does not show what was measured when it was written.
    assert measured not in one_file.whole_page(page.book, TrendEvents(), FileChoice())


def test_a_page_that_shows_what_is_measured_is_not_kept_by_the_browser_when_that_is_over(
    page, ledger, monkeypatch
):
    """The page's tag changes when time alone makes it stale, and when the device is lost.

    That of another view stays.
    """
    report(ledger, activity())
    tags = []
    for now_ns in (NOW_NS, NOW_NS + ACTIVITY_STALE_NS + 1):
        monkeypatch.setattr("time.time_ns", lambda now_ns=now_ns: now_ns)
        tags.append([page.tag(ViewRequest(view), "") for view in ("overview", "compare")])
    assert tags[0][0] != tags[1][0]
    assert tags[0][1] == tags[1][1]
    report(ledger, PresenceChange("lab", "pi-1", DeviceState(state="lost", session=5), 9))
    assert page.tag(ViewRequest("overview"), "") not in (tags[0][0], tags[1][0])
    assert "it may have ended" not in text_of(page, "/")


@pytest.mark.chromium
def test_what_is_measured_appears_and_goes_without_a_reload(browser, ledger):
    """It changes when a run begins, when the next one does, and when the device is lost.

    Texts of devices stay text.
    """
    with served(ledger) as server:
        page = browser.open(server.url, width=390)
        page.drawn()
        page.run("window.same = true")
        main_text = "document.querySelector('main').textContent"
        assert "suite nightly" not in page.run(main_text)
        report(ledger, activity(received_ns=time.time_ns()), job(received_ns=time.time_ns()))
        page.until(f"{main_text}.includes('run 3 of 12 of suite nightly')")
        assert page.run("document.querySelectorAll('#now .bar span').length") == 3
        assert (
            page.run("document.querySelector('#now .bar .done').getBoundingClientRect().width") > 0
        )
        report(
            ledger,
            activity(
                measuring=Measuring(suite=MARKUP, case=MARKUP, run=4, runs=12),
                received_ns=time.time_ns(),
            ),
        )
        page.until(f"{main_text}.includes('run 4 of 12')")
        assert page.run("document.querySelectorAll('img').length") == 0
        assert page.fits()
        report(
            ledger,
            PresenceChange("lab", "pi-1", DeviceState(state="lost", session=5), time.time_ns()),
        )
        page.until(f"!{main_text}.includes('run 4 of 12')")
        assert page.run("window.same")
        assert page.complaints() == []
        page.close()
