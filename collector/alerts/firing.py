"""A firing is a rule that fires now, with findings, start and link to the page.

Firings are a stateless function of the ledger.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from edgemeter.agent.base.nanoseconds import NS_PER_DAY, NS_PER_HOUR
from edgemeter.agent.base.number_text import count, stamp
from edgemeter.agent.contract.series import SeriesKey
from edgemeter.agent.ledger.presence import DevicePresence
from edgemeter.collector.alerts.rules import AlertRule
from edgemeter.collector.compare.odd_boards import board_types
from edgemeter.collector.runs.cases import grouped
from edgemeter.collector.trend import trend_text, watch
from edgemeter.collector.trend.events import (
    FEWEST,
    EventMember,
    TrendEvent,
    device_events,
    step_events,
)
from edgemeter.collector.trend.finding import Missing, Step, iso
from edgemeter.collector.trend.history import History
from edgemeter.collector.trend.metrics import METRICS
from edgemeter.collector.trend.series_trend import SeriesTrend, is_event
from edgemeter.collector.trend.watch_file import Annotation

# An older step has become the level; it stays in the history.
STEP_DAYS = 60
# A step of a board type and those of its boards within this many days are one event.
SAME_EVENT_DAYS = 3

# Days that the page shows before the first day, and after.
DAYS_BEFORE, DAYS_AFTER, MS_PER_DAY = 14, 30, 86_400_000

# A failing board shows several symptoms: each kind of finding explains those with a higher number.
SIGNS = {"device lost": 0, "outbox stopped": 1, "missing": 2, "not ok": 2, "outlying board": 3}


@dataclass(frozen=True, slots=True)
class AlertFinding:
    """A finding of a rule, from a day on (since 1970; 0: unknown); its `facts` identify it."""

    kind: str
    title: str
    text: str
    day: int
    facts: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Alert:
    """A firing rule, for one finding or for an event of several.

    Once a check has stored it, it has a number and an opening time. An alert that `is_explained` by
    another is not notified: it stays open if it is, and does not open otherwise.
    """

    rule: str
    severity: str
    channels: tuple[str, ...]
    title: str
    text: str
    findings: tuple[AlertFinding, ...]
    is_explained: bool = False
    number: int = 0
    opened_ns: int = 0
    closed_ns: int | None = None

    @property
    def state(self) -> str:
        return "open" if self.closed_ns is None else "closed"


def common_facts(findings: Sequence[AlertFinding]) -> dict[str, str]:
    """Return the facts shared by all findings: fleet, board, device, model, ..."""
    return {
        name: value
        for name, value in findings[0].facts.items()
        if all(finding.facts.get(name) == value for finding in findings)
    }


def page_address(findings: Sequence[AlertFinding]) -> dict[str, str]:
    """Return the `view` of the page that shows findings, with its fields."""
    facts, day = common_facts(findings), min(finding.day for finding in findings)
    if "device" in facts and "model" not in facts:
        return {"view": "device", "fleet": facts["fleet"], "device": facts["device"]}
    fields = {name: facts[name] for name in (*watch.SELECTORS, "metric") if name in facts}
    period = (
        {"between": f"{(day - DAYS_BEFORE) * MS_PER_DAY},{(day + DAYS_AFTER) * MS_PER_DAY}"}
        if day
        else {}
    )
    return {"view": "trend", **fields, **period}


@dataclass(frozen=True, slots=True)
class FiringContext:
    """The data that rules are evaluated on: figures, annotations, devices' presence, the time."""

    history: History
    annotations: Sequence[Annotation]
    devices: Sequence[DevicePresence]
    now_ns: int
    results: watch.TrendResults = field(default_factory=dict)

    def is_recent(self, day: int) -> bool:
        """Return whether a finding that began or was last seen on this day is still news."""
        return self.now_ns // NS_PER_DAY - day <= STEP_DAYS

    def trends(self, rule: AlertRule, *, by_type: bool = False) -> list[SeriesTrend]:
        return watch.trends_of(
            self.history,
            self.annotations,
            rule.metrics,
            filter(rule.takes, self.history.series()),
            by_type=by_type,
            results=self.results,
        )


def firings(rules: Sequence[AlertRule], context: FiringContext) -> list[Alert]:
    fired = [_alert(rule, event) for rule in rules for event in _KINDS[rule.kind](rule, context)]
    by_board = grouped((_board(alert), alert) for alert in fired)
    return [
        replace(
            alert, is_explained=any(_explains(cause, alert) for cause in by_board[_board(alert)])
        )
        for alert in fired
    ]


def _alert(rule: AlertRule, event: AlertFinding | TrendEvent) -> Alert:
    findings = (
        (event,) if isinstance(event, AlertFinding) else tuple(map(_of_member, event.members))
    )
    title, text = findings[0].title, findings[0].text
    if isinstance(event, TrendEvent) and not event.is_alone:
        title, text = (
            f"{trend_text.event_kind(event)}: {trend_text.event_of(event)}",
            trend_text.event_text(event),
        )
    return Alert(rule.name, rule.severity, rule.channels, title, text, findings)


def _board(alert: Alert) -> tuple[str, str | None]:
    facts = common_facts(alert.findings)
    return facts["fleet"], facts.get("device")


def _explains(cause: Alert, alert: Alert) -> bool:
    """Return whether `cause` makes a notification of `alert` on the same board unnecessary."""
    sign, strongest = alert.findings[0], cause.findings[0].kind
    if sign.kind not in SIGNS or not {*alert.channels} <= {*cause.channels}:
        return False
    if strongest == "step":
        # A deviating board is one with a step; the runs of a throttling board do not count.
        about = {"outlying board": sign.facts.get("metric"), "not ok": "is_throttled"}.get(
            sign.kind
        )
        return any(finding.facts["metric"] == about for finding in cause.findings)
    return strongest in SIGNS and SIGNS[strongest] < SIGNS[sign.kind]


def _steps(rule: AlertRule, context: FiringContext) -> list[TrendEvent]:
    trends = context.trends(rule)
    boards, types = (
        _due_steps(rule, context, trends),
        [] if rule.device else _due_steps(rule, context, context.trends(rule, by_type=True)),
    )
    fleet_wide = [
        step for event in step_events(boards) if event.kind == "fleet" for step in event.members
    ]
    # A change that people declared on several boards is not reported for their type.
    declared = [
        EventMember(trend, step)
        for trend in trends
        for step in trend.steps
        if step.state == "declared"
    ]
    types = [
        step
        for step in types
        if not _same_event_steps(step, fleet_wide)
        and len(_same_event_steps(step, declared)) < FEWEST
    ]
    return [
        *step_events(types),
        *step_events([step for step in boards if not _same_event_steps(step, types)]),
    ]


def _due_steps(
    rule: AlertRule, context: FiringContext, trends: Sequence[SeriesTrend]
) -> list[EventMember]:
    """Return each trend's newest confirmed step that the rule applies to.

    The step must be large and new enough, and in the direction of the rule.
    """
    newest = [
        (trend, step)
        for trend in trends
        for step in [step for step in trend.steps if is_event(trend.metric, step)][-1:]
    ]
    return [
        EventMember(trend, step)
        for trend, step in newest
        if rule.wants(is_worse=step.is_worse)
        and context.is_recent(step.day)
        and (rule.at_least is None or min(abs(step.low), abs(step.high)) >= rule.at_least)
    ]


def _same_event_steps(member: EventMember, members: Sequence[EventMember]) -> list[EventMember]:
    """Return the steps of the same case on boards of the same type at about the same time.

    Only steps in the same direction are returned.
    """

    def kind(step: EventMember) -> tuple[SeriesKey, str, bool]:
        return (
            step.series.key.of_type(),
            step.series.metric,
            isinstance(step.finding, Step) and step.finding.size > 0,
        )

    near = [
        other for other in members if abs(other.finding.day - member.finding.day) <= SAME_EVENT_DAYS
    ]
    return [other for other in near if kind(other) == kind(member)]


def _drifts(rule: AlertRule, context: FiringContext) -> Iterator[AlertFinding]:
    for trend in context.trends(rule):
        if (
            trend.drift is not None
            and context.is_recent(trend.drift.last_day)
            and rule.wants(is_worse=trend.drift.is_worse)
        ):
            yield _of_series(
                trend, "drift", trend_text.drift_text(trend.metric, trend.drift), trend.drift.day
            )


def _limits(rule: AlertRule, context: FiringContext) -> Iterator[AlertFinding]:
    # A rule has one of the two.
    limit = rule.above or rule.below or 0.0
    for trend in context.trends(rule):
        is_exceeded = trend.level < limit if rule.above is None else trend.level > limit
        if is_exceeded and context.is_recent(trend.last_day):
            level = trend_text.since_text(trend.metric, trend.level, trend.begin_day)
            yield _of_series(
                trend,
                "limit",
                f"{level}, beyond {trend_text.level_text(trend.metric, limit)}",
                trend.begin_day,
            )


def _missing(rule: AlertRule, context: FiringContext) -> list[TrendEvent]:
    # One metric of a case is enough to report missing runs.
    gaps: dict[SeriesKey, EventMember] = {}
    for trend in context.trends(rule):
        if missing := trend.missing(context.now_ns // NS_PER_DAY):
            gaps.setdefault(trend.key, EventMember(trend, missing))
    return device_events(list(gaps.values()))


def _invalid(rule: AlertRule, context: FiringContext) -> Iterator[AlertFinding]:
    for key in filter(rule.takes, context.history.series()):
        lately = context.history.points(key, context.history.last_day(key))
        runs = (
            context.history.points(key) if lately and lately[-1].verdict.state == "invalid" else []
        )
        newest = runs[-rule.runs :]
        if (
            len(newest) == rule.runs
            and all(run.verdict.state == "invalid" for run in newest)
            and context.is_recent(newest[-1].day)
        ):
            text = (
                f"the newest {count(rule.runs, 'run')}, since {iso(newest[0].day)}; the last is "
                f"{newest[-1].id}"
            )
            yield AlertFinding(
                "invalid", f"invalid: {key.device}, {key.case()}", text, newest[0].day, _facts(key)
            )


def _outlying(rule: AlertRule, context: FiringContext) -> Iterator[AlertFinding]:
    keys = list(filter(rule.takes, context.history.series()))
    for kind in (
        kind for name in rule.metrics for kind in board_types(context.history, name, keys)
    ):
        for unit in (unit for unit in kind.odd if rule.wants(is_worse=unit.is_worse)):
            text = (
                f"{trend_text.amount_text(kind.metric, unit.apart)} from {kind.boards - 1} "
                f"others over {count(unit.cases, 'case')}"
            )
            facts = {
                "fleet": kind.fleet,
                "board": kind.board,
                "device": unit.device,
                "metric": kind.metric,
            }
            title = f"outlying board: {unit.device}, {METRICS[kind.metric].figure.title}"
            yield AlertFinding("outlying board", title, text, 0, facts)


def _silent(rule: AlertRule, context: FiringContext) -> Iterator[AlertFinding]:
    """Yield the devices that are lost, or online without a record, for the hours of the rule."""
    kind, state = (
        ("device lost", "lost") if rule.kind == "device-lost" else ("outbox stopped", "online")
    )
    received = context.history.received_ns() if state == "online" else {}
    for device in context.devices:
        since_ns = received.get((device.fleet, device.device), device.changed_ns)
        is_of_rule = rule.fleet in (None, device.fleet) and rule.device in (None, device.device)
        if (
            is_of_rule
            and device.state == state
            and context.now_ns - since_ns >= rule.hours * NS_PER_HOUR
        ):
            text = (
                f"{state if state == 'lost' else 'online without a record'} since "
                f"{stamp(since_ns)} UTC"
            )
            yield AlertFinding(
                kind,
                f"{kind}: {device.device}",
                text,
                since_ns // NS_PER_DAY,
                {"fleet": device.fleet, "device": device.device},
            )


def _of_member(member: EventMember) -> AlertFinding:
    trend, finding = member.series, member.finding
    if isinstance(finding, Missing):
        return _of_series(
            trend, trend_text.gap_kind(finding), trend_text.missing_text(finding), finding.day
        )
    return _of_series(trend, "step", trend_text.step_text(trend.metric, finding), finding.day)


def _of_series(trend: SeriesTrend, kind: str, text: str, day: int) -> AlertFinding:
    key = trend.key
    return AlertFinding(
        kind,
        f"{kind}: {METRICS[trend.metric].figure.title} of {key.model} {key.precision} on "
        f"{key.device or f'all {key.board}'}",
        text,
        day,
        _facts(key) | {"metric": trend.metric},
    )


def _facts(key: SeriesKey) -> dict[str, str]:
    facts = {name: getattr(key, name) for name in watch.SELECTORS} | {"case": key.case()}
    return {name: value for name, value in facts.items() if value}


_KINDS: Mapping[str, Callable[[AlertRule, FiringContext], Iterable[AlertFinding | TrendEvent]]] = {
    "step": _steps,
    "drift": _drifts,
    "limit": _limits,
    "missing": _missing,
    "invalid": _invalid,
    "outlying-board": _outlying,
    "device-lost": _silent,
    "outbox-stopped": _silent,
}
