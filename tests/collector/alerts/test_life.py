"""Test the life of alerts by what fires, and what each channel is to be sent.

A channel is sent the difference from what it knows.
"""

from dataclasses import replace

from edgemeter.collector.alerts.check import Notified, differences, settled
from edgemeter.collector.alerts.firing import Alert, AlertFinding
from edgemeter.collector.alerts.rules import Channel
from tests.fixtures.rows import table_row

DAY_NS = 86_400 * 10**9
NOW = 20_000 * DAY_NS


def firing(*subjects, day=19_990, kind="limit", **settings):
    """Return the alert of a rule that fires on these devices since a day."""
    findings = tuple(
        AlertFinding(kind, f"{kind}: {subject}", "+5%", day, {"fleet": "lab", "device": subject})
        for subject in subjects
    )
    return Alert("rule", "critical", ("c",), findings[0].title, "+5%", findings, **settings)


def story(*checks):
    """Return the events of each check with the numbers of their alerts.

    A check is a day and what fires then.
    """
    alerts, events = {}, []
    for day, *fired in checks:
        changes = settled(list(alerts.values()), fired, NOW + day * DAY_NS)
        alerts |= {alert.number: alert for _, alert in changes}
        events.append([(event, alert.number) for event, alert in changes])
    return events


def test_an_alert_opens_lasts_and_closes_once():
    """A rule that fires again after its alert ended opens another alert."""
    once = firing("a")
    assert story((0, once), (1, once), (2,), (3,), (5, once), (6,)) == [
        [("opened", 1)], [("updated", 1)], [("closed", 1)], [], [("opened", 2)], [("closed", 2)],
    ]  # fmt: skip


def test_a_later_step_of_the_same_series_is_another_alert():
    """A step that begins after the first one's alert opened is another step.

    A step's first day may move by some days.
    """
    first, moved, second = (firing("a", day=day, kind="step") for day in (19_990, 19_994, 20_001))
    assert story((0, first), (1, moved), (6, second)) == [
        [("opened", 1)],
        [("updated", 1)],
        [("opened", 2), ("closed", 1)],
    ]


def test_findings_that_become_one_event_stay_one_alert():
    """The older alert goes on as the event, the other ends in it.

    An event that falls apart loses no finding.
    """
    assert story(
        (0, firing("a"), firing("b")), (1, firing("a", "b", "c")),
        (2, firing("a"), firing("b")), (3,),
    ) == [
        [("opened", 1), ("opened", 2)], [("updated", 1), ("joined", 2)],
        [("updated", 1), ("opened", 3)], [("closed", 1), ("closed", 3)],
    ]  # fmt: skip


def test_what_another_firing_explains_opens_no_alert_and_closes_none():
    """Results that are missing since the board was lost are no news.

    They are not over either where they were missed before.
    """
    explained = firing("a", is_explained=True)
    assert story((0, explained)) == [[]]
    assert story((0, firing("a")), (1, explained), (2,)) == [
        [("opened", 1)],
        [("updated", 1)],
        [("closed", 1)],
    ]
    assert story((0, firing("a")), (1,), (2, explained)) == [[("opened", 1)], [("closed", 1)], []]


def test_a_channel_is_sent_what_it_does_not_know():
    """The message depends on what the channel was sent last, and what its kind needs."""
    plain, manager = (
        Channel(name="c", url="json://h"),
        Channel(name="c", kind="alertmanager", url="http://h"),
    )
    is_open, is_over = firing("a", number=1), firing("a", number=1, closed_ns=NOW)
    for channel, alert, state, is_due in (
        (plain, is_open, None, True),
        (plain, is_open, "open", False),
        (plain, is_open, "closed", True),
        (plain, is_over, "open", True),
        # It was over before the channel heard that it opened.
        (plain, is_over, None, True),
        (plain, is_over, "closed", False),
        # It takes for over what is not sent again.
        (manager, is_open, "open", True),
        (manager, is_over, "closed", False),
    ):
        with table_row((channel.kind, alert.closed_ns, state)):
            states = [
                sent.state
                for sent in differences(
                    [alert], [Notified(1, "c", state, NOW, None)], [channel]
                ).get(channel, ())
            ]
            assert states == ([alert.state] if is_due else [])


def test_a_channel_is_sent_open_alerts_only_when_it_is_new_and_of_none_that_is_not_its_own():
    """An added channel hears of open alerts, one that no rule names hears nothing."""
    channels = Channel(name="c", url="json://h"), Channel(name="other", url="json://h")
    alerts = [firing("a", number=1, closed_ns=NOW), firing("b", number=2)]
    due = {
        channel.name: [alert.number for alert in of_channel]
        for channel, of_channel in differences(alerts, (), channels).items()
    }
    assert due == {"c": [2]}


def test_a_channel_is_sent_the_worst_first():
    """The message has the title and colour of its first alert, an open and critical one."""
    channel = Channel(name="c", url="json://h")
    alerts = [
        replace(firing("a"), number=number, severity=severity, closed_ns=closed_ns)
        for number, (severity, closed_ns) in enumerate(
            (("critical", NOW), ("info", None), ("critical", None), ("warning", None)), 1
        )
    ]
    due = differences(alerts, [Notified(1, "c", "open", NOW, None)], [channel])
    assert [alert.number for alert in due[channel]] == [3, 4, 2, 1]
