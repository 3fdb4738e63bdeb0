"""Facts about what is measured now: who is gone measures nothing, what is old is called so, a page is told without a reload."""

import time

import pytest

from edgemeter.agent.contract import messages
from edgemeter.agent.contract.messages import ACTIVITY_STALE_NS, Activity, CampaignProgress, DeviceState, Measuring
from edgemeter.agent.ledger.presence import DevicePresence, PresenceChange, RetainedMessage
from edgemeter.agent.ledger.sqlite_ledger import SqliteLedger
from edgemeter.collector.web import one_file
from edgemeter.collector.web.activity import DEVICES_SHOWN, activities_of
from edgemeter.collector.web.events import TrendEvents
from edgemeter.collector.web.one_file import FileChoice
from edgemeter.collector.web.view import ViewRequest
from tests.fixtures.axe import axe_script, serious
from tests.fixtures.comparison_factory import make_reference, make_run
from tests.fixtures.hostile import MARKUP
from tests.fixtures.ledgers import fill
from tests.fixtures.live_stream import Stream, clients
from tests.fixtures.mqtt_peer import wait_until
from tests.fixtures.rows import table_row
from tests.fixtures.served_page import indexed, served

NOW_NS = 1_800_000_000 * 10**9
HOUR_NS = 3600 * 10**9
MEASURING = Measuring(suite="nightly", case="tiny-detector.tflite litert 4 threads", run=3, runs=12, failed=1, job="measure-1")
CAMPAIGN = CampaignProgress(
    campaign="autumn", state="running", group=2, groups=3, done=12, failed=1, running=3, waiting=24, impossible=2
)  # fmt: skip


def activity(device="pi-1", session=5, measuring=MEASURING, received_ns=NOW_NS):
    """Return what a collector keeps of a device's activity."""
    payload = messages.encode_message(Activity(session=session, measuring=measuring))
    return RetainedMessage(f"edgemeter/v1/lab/{device}/activity", payload, received_ns)


def campaign(received_ns=NOW_NS, **changes):
    """Return what a collector keeps of a campaign's progress."""
    progress = messages.encode_message(
        CampaignProgress(**{**{name: getattr(CAMPAIGN, name) for name in CAMPAIGN.__struct_fields__}, **changes})
    )
    return RetainedMessage("edgemeter/campaign/autumn/state", progress, received_ns)


def present(state, session=5, since_ns=NOW_NS - 1):
    """Return a device as its state says; numbers of sessions have no order."""
    return DevicePresence("lab", "pi-1", state, session, None, since_ns)


def put(ledger, *changes):
    """Commit what devices and the fleet's service reported, as the collector does."""
    with SqliteLedger(ledger) as opened:
        opened.commit((), (), list(changes))


def page_of(view, **fields):
    """Return what the server is asked for."""
    return ViewRequest(view, fields), ""


@pytest.fixture
def ledger(tmp_path):
    """Return a ledger of two runs."""
    return fill(tmp_path / "ledger.sqlite", [make_run(id="first", device="pi-1"), make_reference(id="reference")])


@pytest.fixture
def page_server(ledger):
    """Serve the ledger's page."""
    with served(ledger, heartbeat_s=0.2) as server:
        yield server


def test_a_device_measures_while_the_process_that_reported_it_is_there():
    """A device that is lost does not measure for ever, nor does one whose agent was started again."""
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


def test_a_device_that_reports_that_nothing_is_measured_measures_nothing():
    """It is the state between two sessions."""
    assert activities_of([activity(measuring=None)], [present("online")], NOW_NS).key == "nothing"


def test_what_was_not_reported_on_for_an_hour_is_called_stale():
    """By the time of receipt: a device's own clock plays no part."""
    assert not activities_of([activity()], [], NOW_NS + ACTIVITY_STALE_NS).devices[0].is_stale
    assert activities_of([activity()], [], NOW_NS + ACTIVITY_STALE_NS + 1).devices[0].is_stale


def test_a_campaign_is_shown_for_a_day_after_its_end_and_called_stale_when_nobody_reports_on_it():
    """One that should go on stays, with the time."""
    for state, age_h, expected in (("running", 25, [True]), ("running", 23, [False]), ("done", 23, [False]), ("done", 25, [])):
        with table_row(state, age_h):
            activities = activities_of([campaign(state=state)], [], NOW_NS + age_h * HOUR_NS)
            assert [campaign_activity.is_stale for campaign_activity in activities.campaigns] == expected


def test_a_message_of_a_later_version_is_left_out():
    """It is no reason to show no page."""
    assert activities_of([RetainedMessage("edgemeter/v1/lab/pi-1/activity", b"{}", 5)], [], NOW_NS).key == "nothing"


@pytest.mark.services
def test_overview_and_device_show_what_is_measured(page_server, ledger):
    """Case, run of how many, suite, failures, job, and when that was received; the campaign with its counts."""
    at_ns = time.time_ns()
    put(ledger, activity(received_ns=at_ns), campaign(received_ns=at_ns))
    overview = page_server.answer(*page_of("overview")).body.decode()
    activity_text = "tiny-detector.tflite litert 4 threads: run 3 of 12 of suite nightly, 1 failed before, job measure-1, reported "
    assert activity_text in overview
    assert "running, group 2 of 3; 12 done, 1 failed, 3 running, 24 waiting of 40; 2 more are impossible; as of " in overview
    assert activity_text in page_server.answer(*page_of("device", device="pi-1")).body.decode()
    assert activity_text not in page_server.answer(*page_of("device", device="server")).body.decode()


def test_a_fleet_that_measures_a_lot_is_counted(page_server, ledger):
    """Beyond the devices that are named, the page says how many more there are."""
    put(ledger, *(activity(device=f"pi-{number}") for number in range(DEVICES_SHOWN + 30)))
    assert "30 more devices are measuring." in page_server.answer(*page_of("overview")).body.decode()


def test_the_first_device_of_an_empty_ledger_is_seen_before_its_first_run_ends(tmp_path):
    """The page of a new collector is not empty while something happens."""
    ledger = fill(tmp_path / "ledger.sqlite", [])
    put(ledger, activity(received_ns=time.time_ns()))
    with served(ledger) as server:
        body = server.answer(*page_of("overview")).body.decode()
    assert "run 3 of 12 of suite nightly" in body
    assert "Nothing here yet" in body


def test_a_page_in_a_file_does_not_show_what_was_measured_when_it_was_written(ledger, tmp_path):
    """A stored page is read later, when another run is in progress or none."""
    put(ledger, activity(received_ns=time.time_ns()))
    with indexed(ledger) as index:
        (tmp_path / "page.html").write_text(one_file.whole_page(index, TrendEvents(), FileChoice()), encoding="utf-8")
    assert "run 3 of 12" not in (tmp_path / "page.html").read_text()


def test_clients_are_notified_when_something_else_is_measured(page_server, ledger):
    """Also when it changed between the making of the page and its first question; the key is that of the page."""
    stream = Stream(page_server, after="2&now=nothing")
    assert wait_until(lambda: clients(page_server) == 1)
    put(ledger, activity())
    name, _, news = stream.event()
    assert (name, news) == ("now", {"now": page_server._doing()})
    late = Stream(page_server, after="2&now=what-the-page-knew")
    assert late.event()[0] == "now"
    put(ledger, activity(measuring=None))
    assert [client.event()[2] for client in (stream, late)] == [{"now": "nothing"}] * 2
    stream.close(), late.close()


def test_a_page_that_shows_what_is_measured_is_not_kept_by_the_browser_when_that_is_over(page_server, ledger):
    """Its tag is another one, also where time alone makes it stale."""
    request, form = page_of("overview")
    put(ledger, activity(received_ns=time.time_ns()))
    tags = {page_server.tag(request, form)}
    put(ledger, activity(received_ns=time.time_ns() - 2 * ACTIVITY_STALE_NS, measuring=Measuring(suite="s", case="c", run=1, runs=1)))
    tags.add(page_server.tag(request, form))
    put(ledger, PresenceChange("lab", "pi-1", DeviceState(state="lost", session=5), 9))
    tags.add(page_server.tag(request, form))
    assert len(tags) == 3
    assert "it may have ended" not in page_server.answer(request, form).body.decode()


@pytest.mark.needs("npm")
@pytest.mark.chromium
@pytest.mark.services
@pytest.mark.parametrize("address", ["", "device?device=pi-1"], ids=["overview", "device"])
def test_what_is_measured_appears_and_goes_without_a_reload(browser, page_server, ledger, address):
    """When a run begins, when the next one does, and when the device is lost; what devices send stays text."""
    page = browser.open(f"{page_server.url}{address}", width=390 if address else 1280)
    page.drawn()
    page.run("window.same = true")
    main_text = "document.querySelector('main').textContent"
    assert "suite nightly" not in page.run(main_text)
    put(ledger, activity(received_ns=time.time_ns()), campaign(received_ns=time.time_ns()))
    page.until(f"{main_text}.includes('run 3 of 12 of suite nightly')")
    if not address:
        assert page.run("document.querySelectorAll('#now .bar span').length") == 3
        assert page.run("document.querySelector('#now .bar .done').getBoundingClientRect().width") > 50
    put(ledger, activity(measuring=Measuring(suite=MARKUP, case=MARKUP, run=4, runs=12), received_ns=time.time_ns()))
    page.until(f"{main_text}.includes('run 4 of 12')")
    assert page.run("document.querySelectorAll('img').length") == 0
    assert page.fits()
    page.run(axe_script())
    assert serious(page.run("axe.run(document, {resultTypes: ['violations']})")) == []
    put(ledger, PresenceChange("lab", "pi-1", DeviceState(state="lost", session=5), time.time_ns()))
    page.until(f"!{main_text}.includes('run 4 of 12')")
    assert page.run("window.same")
    assert page.complaints() == []
    page.close()
