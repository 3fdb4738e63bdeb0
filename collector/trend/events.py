"""Events: findings with one cause, reported once.

A firmware that slows down 24 boards in two precisions is one event, not 48 steps.

An event is fleet-wide if several devices have findings at the same time with the same change. It is
a device's own if several of its series have findings at the same time without such a change: a
board that is defective or offline. Any other finding is an event by itself.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from edgemeter.agent.contract.series import SeriesKey
from edgemeter.collector.runs.cases import grouped
from edgemeter.collector.trend.finding import Missing, Step
from edgemeter.collector.trend.series_trend import SeriesTrend
from edgemeter.collector.trend.thresholds import SPREAD_DAYS

FEWEST = 2
EventKind = Literal["fleet", "device", "missing"]


class FindingName(NamedTuple):
    """The name of a finding: series, metric, and the day of a step, None for a gap."""

    series: SeriesKey
    metric: str
    day: int | None


@dataclass(frozen=True, slots=True)
class EventMember:
    """A finding that belongs to an event: its series, and the step, or the gap at its end."""

    series: SeriesTrend
    finding: Step | Missing

    @property
    def name(self) -> FindingName:
        return FindingName(
            self.series.key,
            self.series.metric,
            self.finding.day if isinstance(self.finding, Step) else None,
        )

    @property
    def days(self) -> tuple[int, int]:
        """The earliest and the latest day on which it may have begun."""
        return (
            (self.finding.day_low, self.finding.day_high)
            if isinstance(self.finding, Step)
            else (self.finding.day, self.finding.day)
        )

    @property
    def causes(self) -> tuple[str, ...]:
        """The changes on that day, or without any those near it."""
        return (
            self.finding.candidates or self.finding.changed_near
            if isinstance(self.finding, Step)
            else ()
        )


@dataclass(frozen=True, slots=True)
class TrendEvent:
    """Several findings as one.

    `cause` is what changed on that day, None if unknown; days count from 1970.
    """

    kind: EventKind
    cause: str | None
    day_low: int
    day_high: int
    members: tuple[EventMember, ...]

    @property
    def devices(self) -> tuple[str, ...]:
        """The affected devices, sorted; for a series of a board type all of that type."""
        return tuple(
            sorted(
                {
                    member.series.key.device or f"all {member.series.key.board}"
                    for member in self.members
                }
            )
        )

    @property
    def is_alone(self) -> bool:
        return len(self.members) == 1


def events_of(trends: Sequence[SeriesTrend], until: int) -> list[TrendEvent]:
    """Return the events of several findings among the steps and the gaps of `trends`.

    The steps are confirmed ones. The newest event is first.
    """
    events = [
        *step_events([EventMember(trend, step) for trend in trends for step in trend.steps]),
        *device_events(
            [
                EventMember(trend, gap)
                for trend in trends
                if (gap := trend.missing(until)) is not None
            ]
        ),
    ]
    return sorted(
        (event for event in events if not event.is_alone),
        key=lambda event: (-event.day_high, -len(event.members)),
    )


def step_events(steps: Sequence[EventMember]) -> list[TrendEvent]:
    """Return the events of steps, those of the whole fleet first, single steps last."""
    events = list(_fleet_wide(steps))
    fleet_wide = told_by(events)
    return [*events, *device_events([step for step in steps if step.name not in fleet_wide])]


def device_events(findings: Sequence[EventMember]) -> list[TrendEvent]:
    """Return the events of steps, or of gaps, by device.

    They are also by whether there are runs that do not count; single ones are last.
    """
    events = []
    devices = (
        (member.series.key.fleet, member.series.key.board, member.series.key.device)
        for member in findings
    )
    has_runs = (
        isinstance(member.finding, Missing) and member.finding.has_runs for member in findings
    )
    for members in grouped(
        zip(zip(has_runs, devices, strict=True), findings, strict=True)
    ).values():
        for together in _together(members):
            shared = set.intersection(*(set(member.causes) for member in together))
            is_gap, is_type = (
                isinstance(members[0].finding, Missing),
                not members[0].series.key.device,
            )
            events.append(
                _event(
                    "missing" if is_gap else "fleet" if is_type else "device",
                    ", ".join(sorted(shared)) or None,
                    together,
                )
            )
    return sorted(events, key=lambda event: event.is_alone)


def told_by(events: Iterable[TrendEvent]) -> set[FindingName]:
    return {member.name for event in events for member in event.members}


def _fleet_wide(steps: Sequence[EventMember]) -> Iterator[TrendEvent]:
    """Yield the events with one cause on several devices.

    A step that coincides with several changes counts for the most frequent one.
    """
    often = Counter((step.series.key.fleet, cause) for step in steps for cause in set(step.causes))
    by_cause: dict[tuple[str, str], list[EventMember]] = defaultdict(list)
    for step in steps:
        if step.causes:
            cause = max(step.causes, key=lambda cause: (often[step.series.key.fleet, cause], cause))
            by_cause[step.series.key.fleet, cause].append(step)
    for (_, cause), members in by_cause.items():
        for together in _together(members):
            event = _event("fleet", cause, together)
            if len(event.devices) >= FEWEST:
                yield event


def _together(members: Sequence[EventMember]) -> Iterator[list[EventMember]]:
    """Yield the members in groups whose first days overlap or nearly do."""
    group: list[EventMember] = []
    last = 0
    for member in sorted(members, key=lambda member: member.days):
        low, high = member.days
        if group and low > last + SPREAD_DAYS:
            yield group
            group = []
        last = max(last, high) if group else high
        group.append(member)
    if group:
        yield group


def _event(kind: EventKind, cause: str | None, members: Sequence[EventMember]) -> TrendEvent:
    days = [member.days for member in members]
    return TrendEvent(
        kind, cause, min(low for low, _ in days), max(high for _, high in days), tuple(members)
    )
