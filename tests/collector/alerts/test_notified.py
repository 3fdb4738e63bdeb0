"""Facts about what becomes of alerts by what fires, and what a channel is to be sent: the difference to what it knows."""

from edgemeter.collector.alerts.firing import AlertFinding, Firing
from edgemeter.collector.alerts.notified import Alert, Notified, differences, settled
from edgemeter.collector.alerts.rules import AlertRule, AlertRules, Channel
from tests.fixtures.rows import table_row

DAY_NS = 86_400 * 10**9
NOW = 20_000 * DAY_NS


def firing(*subjects, day=19_990, days=None, title="step", **settings):
    """Return the firing of a rule on these subjects, of which a step's first day lies in `days`."""
    findings = tuple(AlertFinding(subject, title, "+5%", day, {"fleet": "lab"}, days) for subject in subjects)
    return Firing("rule", "critical", title, "+5%", {"fleet": "lab"}, findings, **settings)


def story(*checks):
    """Return the events of each check with the numbers of their alerts; a check is a day and what fires then."""
    alerts, events = {}, []
    for day, *firings in checks:
        changes = settled(list(alerts.values()), firings, NOW + day * DAY_NS)
        alerts |= {alert.number: alert for _, alert in changes}
        events.append([(event, alert.number) for event, alert in changes])
    return events


def test_an_alert_opens_lasts_and_closes_once():
    """What fires again within days of its end is the same alert, later another."""
    once = firing("a")
    assert story((0, once), (1, once), (2,), (3,), (5, once), (6,), (20, once)) == [
        [("opened", 1)], [("updated", 1)], [("closed", 1)], [], [("opened", 1)], [("closed", 1)], [("opened", 2)],
    ]  # fmt: skip


def test_a_later_step_of_the_same_series_is_another_alert():
    """Its first day may move by some days; three weeks later it is another step, also where the first one is still open."""
    first, moved, second = (firing("a", day=day, days=(day - 2, day + 2)) for day in (19_970, 19_974, 19_995))
    assert story((0, first), (1, moved), (2, second)) == [[("opened", 1)], [("updated", 1)], [("opened", 2), ("closed", 1)]]


def test_findings_that_become_one_event_stay_one_alert():
    """The older goes on as the event, the other ends in it; an event that falls apart loses no finding."""
    assert story((0, firing("a"), firing("b")), (1, firing("a", "b", "c")), (2, firing("a"), firing("b")), (3,)) == [
        [("opened", 1), ("opened", 2)], [("updated", 1), ("joined", 2)], [("updated", 1), ("opened", 2)], [("closed", 1), ("closed", 2)],
    ]  # fmt: skip


def test_what_another_firing_explains_opens_no_alert_and_closes_none():
    """Results that are missing since the board is lost: no news, and not over where they were missed before."""
    explained = firing("a", is_explained=True)
    assert story((0, explained)) == [[]]
    assert story((0, firing("a")), (1, explained), (2,)) == [[("opened", 1)], [("updated", 1)], [("closed", 1)]]
    assert story((0, firing("a")), (1,), (2, explained)) == [[("opened", 1)], [("closed", 1)], []]


def test_a_channel_is_sent_what_it_does_not_know():
    """By what it was sent last, and what its kind needs."""
    plain, manager = Channel(name="c", url="json://h"), Channel(name="c", kind="alertmanager", url="http://h")
    is_open, is_over = Alert(1, firing("a"), NOW), Alert(1, firing("a"), NOW, NOW)
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
            rules = AlertRules(rule=(AlertRule(name="rule", kind="step", channels=("c",)),), channel=(channel,))
            notified = [Notified(1, "c", state, NOW, None, None)]
            states = [sent.state for sent in differences([alert], notified, rules).get(channel, ())]
            assert states == ([alert.state] if is_due else [])


def test_a_channel_is_sent_open_alerts_only_when_it_is_new_and_of_none_that_is_not_its_own():
    """A channel that was added hears of what is open; one that a rule does not name hears nothing."""
    rules = AlertRules(
        rule=(AlertRule(name="rule", kind="step", channels=("new",)),),
        channel=(Channel(name="new", url="json://h"), Channel(name="other", url="json://h")),
    )
    alerts = [Alert(1, firing("a"), NOW, NOW), Alert(2, firing("b"), NOW)]
    due = {channel.name: [alert.number for alert in of_channel] for channel, of_channel in differences(alerts, (), rules).items()}
    assert due == {"new": [2]}
