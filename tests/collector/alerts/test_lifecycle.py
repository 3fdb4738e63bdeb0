from dataclasses import replace

import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.collector.alerts import lifecycle
from edgemeter.collector.alerts.firing import Firing, FiringMember
from edgemeter.collector.alerts.lifecycle import rules_health
from edgemeter.collector.trend import watch_file
from edgemeter.collector.trend.watch_file import WatchFile

DAY_NS = 86_400 * 1_000_000_000
NOW = 20_000 * DAY_NS


def firing(text="+5%", day=19_990, subject="lab | pi-1 | case | energy"):
    """Return a firing of a step."""
    facts = {"fleet": "lab", "device": "pi-1", "metric": "energy_gross_mj", "model": "tiny"}
    return Firing("confirmed step", subject, "critical", "step: energy of tiny", text, day, facts)


@pytest.fixture
def file(tmp_path):
    """Return a watch file."""
    with WatchFile(tmp_path / "w") as opened:
        yield opened


def events(file, *firings, day=0, is_dry=False):
    """Return what happens when these fire on a day."""
    now_ns = NOW + day * DAY_NS
    if is_dry:
        changes, _ = lifecycle.alert_changes(lifecycle.read_alerts(file, with_closed=True), list(firings), now_ns)
    else:
        changes = lifecycle.settle_alerts(file, list(firings), now_ns)
    return [change.event for change in changes]


def test_an_alert_opens_once_is_updated_and_closes(file):
    """The same firing changes nothing; another size updates; no firing closes; and then there is silence."""
    assert events(file, firing()) == ["opened"]
    assert events(file, firing(), day=1) == []
    assert events(file, firing("+6%"), day=2) == ["updated"]
    assert events(file, day=3) == ["closed"]
    assert events(file, day=4) == []
    (alert,) = lifecycle.read_alerts(file, with_closed=True)
    assert (alert.firing.text, alert.outcome, alert.opened_ns, alert.closed_ns) == ("+6%", "over", NOW, NOW + 3 * DAY_NS)


def test_a_step_that_fades_and_comes_back_is_the_same_alert(file):
    """It has its number still, and is told anew, as it was told as over; a step on quite another day is another alert."""
    events(file, firing())
    events(file, day=1)
    assert events(file, firing(day=19_992), day=2) == ["opened"]
    assert len(lifecycle.read_alerts(file, with_closed=True)) == 1
    events(file, day=3)
    assert events(file, firing(day=20_030), day=50) == ["opened"]


def test_a_later_step_of_the_same_series_is_another_alert(file):
    """The interval of its first day tells: one that moves by some days updates, one of three weeks later opens, and the first closes."""
    first, moved, second = (replace(firing(day=day), first_days=(day - 2, day + 2)) for day in (19_970, 19_974, 19_995))
    assert events(file, first) == ["opened"]
    assert events(file, moved, day=1) == ["updated"]
    assert events(file, second, day=2) == ["opened", "closed"]
    assert [alert.firing.day for alert in lifecycle.read_alerts(file)] == [19_995]


def test_what_was_dismissed_does_not_open_again_for_its_day(file):
    """A new step of the same series does; an alert that is not there is named."""
    events(file, firing())
    lifecycle.dismiss(file, 1, "the meter was moved")
    assert lifecycle.read_alerts(file) == []
    assert events(file, firing("+7%", day=19_991), day=1) == []
    assert events(file, firing(day=20_020), day=30) == ["opened"]
    assert lifecycle.find_alert(file, 1).remark == "the meter was moved"
    with pytest.raises(ConfigError, match="no alert 7"):
        lifecycle.dismiss(file, 7, None)


def test_acknowledging_begins_a_new_level(file):
    """The annotation stands on the first bad day, for that device and metric; the alert stays until the step is no finding any more."""
    events(file, firing())
    lifecycle.acknowledge(file, 1, "new power supply")
    (note,) = watch_file.read_annotations(file)
    assert (note.day, note.device, note.metric, note.text) == (19_990, "pi-1", "energy_gross_mj", "new power supply")
    assert events(file, day=1) == ["closed"]
    assert lifecycle.find_alert(file, 1).outcome == "confirmed"


def event_of(*subjects):
    """Return the firing of an event with these members."""
    members = tuple(FiringMember(subject, "+5%", 19_990, {}) for subject in subjects)
    return Firing("confirmed step", f"lab | {len(subjects)} boards", "critical", "fleet", "text", 19_990, {"fleet": "lab"}, members)


def test_findings_that_become_one_event_stay_one_alert(file):
    """Two were open: the older goes on as the event, the other ends in it without a word; a third member changes nothing."""
    assert events(file, firing(subject="a"), firing(subject="b")) == ["opened", "opened"]
    assert events(file, event_of("a", "b"), is_dry=True) == ["updated"]
    assert events(file, event_of("a", "b"), day=1) == ["updated"]
    assert events(file, event_of("a", "b", "c"), day=2) == ["updated"]
    assert [(alert.number, alert.firing.subject) for alert in lifecycle.read_alerts(file)] == [(1, "lab | 3 boards")]
    assert events(file, day=3) == ["closed"]


def test_an_event_that_was_dismissed_stays_so_until_most_of_it_is_new(file):
    """One of its members alone, or one more, is no news; three more are."""
    events(file, event_of("a", "b"))
    lifecycle.dismiss(file, 1, "expected")
    assert events(file, firing(subject="a"), day=1) == []
    assert events(file, event_of("a", "b", "c"), day=1) == []
    assert events(file, event_of("a", "b", "c", "d", "e"), day=1) == ["opened"]


def test_an_event_that_falls_apart_loses_no_finding(file):
    """One of two goes on as the alert, the other opens."""
    events(file, event_of("a", "b"))
    assert events(file, firing(subject="a"), firing(subject="b"), day=1) == ["updated", "opened"]
    assert sorted(alert.firing.subject for alert in lifecycle.read_alerts(file)) == ["a", "b"]


def test_the_health_of_a_rule_counts_what_became_of_its_alerts(file):
    """Two judged, one of them false: half are real; a rule that never spoke is there with nought."""
    for count in (1, 2, 3):
        events(file, *(firing(subject=name) for name in "abc"[:count]))
    lifecycle.judge_alert(file, 1, "confirmed", None)
    lifecycle.judge_alert(file, 2, "dismissed", "noise")
    spoke, silent = rules_health(lifecycle.read_alerts(file, with_closed=True), ["confirmed step", "drift"], NOW, 90)
    assert (spoke.opened, spoke.open_now, spoke.confirmed, spoke.dismissed, spoke.not_judged) == (3, 2, 1, 1, 1)
    assert spoke.precise_ratio == 0.5
    assert (silent.rule, silent.opened, silent.precise_ratio) == ("drift", 0, None)
