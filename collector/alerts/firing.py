"""Firings: which rules fire now, on what, since when, and where the page shows it; a function of the ledger that keeps no state."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from edgemeter.agent.base.figures import count, stamp
from edgemeter.agent.base.nanoseconds import NS_PER_DAY, NS_PER_HOUR
from edgemeter.agent.contract.series import SeriesKey
from edgemeter.agent.ledger.presence import DevicePresence
from edgemeter.collector.alerts.rules import AlertRule
from edgemeter.collector.runs.cases import grouped
from edgemeter.collector.trend import trend_text, watch
from edgemeter.collector.trend.events import FEWEST, EventMember, TrendEvent, device_events, step_events
from edgemeter.collector.trend.finding import Missing, Step, iso
from edgemeter.collector.trend.history import History
from edgemeter.collector.trend.metrics import METRICS
from edgemeter.collector.trend.series_trend import SeriesTrend, is_event
from edgemeter.collector.trend.watch_file import Annotation
from edgemeter.collector.units.odd_boards import board_types

# An older step has become the level; it stays in the history.
STEP_DAYS = 60
# A step of a board type and those of its boards within so many days are one event.
SAME_EVENT_DAYS = 3

# The page shows so many days before the first day, and after.
DAYS_BEFORE, DAYS_AFTER, MS_PER_DAY = 14, 30, 86_400_000
_SHOWN = ("fleet", "device", "board", "model", "precision")

# A board that is dying shows it in several ways: each of these kinds explains those after it.
SIGNS = ("device-lost", "outbox-stopped", "missing", "outlying-board")


@dataclass(frozen=True, slots=True)
class AlertFinding:
    """The finding of a rule on `subject`, from a day (since 1970; 0: unknown) on; `first_days` are those that a step's day may be."""

    subject: str
    title: str
    text: str
    day: int
    facts: Mapping[str, str]
    first_days: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Firing:
    """A rule that fires, for one finding or for an event of several; `facts` are labels for machines.

    With `has_runs` the runs that are missing came, but do not count. What `is_explained` by another firing is no news: an alert that is
    open stays open, and none opens.
    """

    rule: str
    severity: str
    title: str
    text: str
    facts: Mapping[str, str]
    findings: tuple[AlertFinding, ...]
    has_runs: bool = False
    is_explained: bool = False


def page_address(findings: Sequence[AlertFinding]) -> dict[str, str]:
    """Return the `view` of the page that shows findings, with its fields: what all have in common."""
    facts = {name: value for name, value in findings[0].facts.items() if all(other.facts.get(name) == value for other in findings)}
    if len(findings) == 1 and "model" not in facts:
        return {"view": "device", "fleet": facts["fleet"], "device": facts["device"]}
    day = min(finding.day for finding in findings)
    period = f"{(day - DAYS_BEFORE) * MS_PER_DAY},{(day + DAYS_AFTER) * MS_PER_DAY}"
    fields = {name: facts[name] for name in _SHOWN if name in facts} | ({"between": period} if day else {})
    return {"view": "trend", **fields, **{name: value for name, value in findings[0].facts.items() if name == "metric"}}


@dataclass(frozen=True, slots=True)
class FiringContext:
    """The data that rules are evaluated on: figures, annotations, the presence of devices, and the time."""

    history: History
    annotations: Sequence[Annotation]
    devices: Sequence[DevicePresence]
    now_ns: int
    results: watch.TrendResults = field(default_factory=dict)

    def is_recent(self, day: int) -> bool:
        """Return whether what began or was last seen on this day is news still."""
        return self.now_ns // NS_PER_DAY - day <= STEP_DAYS

    def trends(self, rule: AlertRule, *, by_type: bool = False) -> list[SeriesTrend]:
        """Return the trends of the metrics and series of a rule."""
        keys = filter(rule.takes, self.history.series())
        return watch.trends_of(self.history, self.annotations, rule.metrics, keys, by_type=by_type, results=self.results)


def firings(rules: Sequence[AlertRule], context: FiringContext) -> list[Firing]:
    """Return what fires now, in the order of the rules."""
    fired = [(rule, _fired(rule, event)) for rule in rules for event in _KINDS[rule.kind](rule, context)]
    by_board = grouped((_board(firing), (rule, firing)) for rule, firing in fired)
    return [
        replace(firing, is_explained=any(_explains(*other, rule, firing) for other in by_board[_board(firing)])) for rule, firing in fired
    ]


def _fired(rule: AlertRule, event: AlertFinding | TrendEvent) -> Firing:
    """Return the firing of a finding, or of an event, whose facts stay as they are when more boards or cases join."""
    findings = (event,) if isinstance(event, AlertFinding) else tuple(map(_of_member, event.members))
    title, text, facts, has_runs = findings[0].title, findings[0].text, findings[0].facts, False
    if isinstance(event, TrendEvent):
        has_runs = any(isinstance(member.finding, Missing) and member.finding.has_runs for member in event.members)
        if not event.is_alone:
            title, text = f"{trend_text.event_kind(event)}: {trend_text.event_of(event)}", trend_text.event_text(event)
            stable = ("fleet",) if event.kind == "fleet" else ("fleet", "board", "device")
            facts = {name: facts[name] for name in stable if name in facts} | ({"cause": event.cause} if event.cause else {})
    return Firing(rule.name, rule.severity, title, text, facts, findings, has_runs)


def _of_member(member: EventMember) -> AlertFinding:
    trend, finding = member.series, member.finding
    if isinstance(finding, Missing):
        return _of_series(trend, trend_text.gap_kind(finding), trend_text.missing_text(finding), finding.day)
    return _of_series(trend, "step", trend_text.step_text(trend.metric, finding), finding.day, member.days)


def _board(firing: Firing) -> tuple[str, str | None]:
    return firing.facts["fleet"], firing.facts.get("device")


def _explains(by_rule: AlertRule, cause: Firing, rule: AlertRule, firing: Firing) -> bool:
    """Return whether whoever hears of `cause` need not hear of `firing`, on the same board."""
    if _board(firing)[1] is None or rule.kind not in SIGNS or not {*rule.channels} <= {*by_rule.channels}:
        return False
    if by_rule.kind == "step":
        # A board deviates by its step; the runs of one that throttles do not count, and so are missing.
        about = "is_throttled" if firing.has_runs else firing.facts.get("metric") if rule.kind == "outlying-board" else None
        return any(finding.facts["metric"] == about for finding in cause.findings)
    return by_rule.kind in SIGNS[: SIGNS.index(rule.kind)]


def _steps(rule: AlertRule, context: FiringContext) -> list[TrendEvent]:
    """Return each event once: what one cause did to several boards, what hit a board type, what hit one board, and what is alone."""
    trends = context.trends(rule)
    events = step_events(_due_steps(rule, context, trends))
    of_types = [] if rule.device else _due_steps(rule, context, context.trends(rule, by_type=True))
    fleet_wide = [event for event in events if event.kind == "fleet"]
    by_cause = [member for event in fleet_wide for member in event.members]
    # What people declared on several boards is no news of their type.
    declared = [EventMember(trend, step) for trend in trends for step in trend.steps if step.state == "declared"]
    new = [step for step in of_types if not _beside(step, by_cause) and len(_beside(step, declared)) < FEWEST]
    of_boards = [step for event in events if event.kind != "fleet" for step in event.members if not _beside(step, new)]
    return [*fleet_wide, *step_events(new), *step_events(of_boards)]


def _due_steps(rule: AlertRule, context: FiringContext, trends: Sequence[SeriesTrend]) -> list[EventMember]:
    """Return of each trend the newest confirmed step, if it is large and new enough and has the direction of the rule."""
    return [
        EventMember(trend, step)
        for trend in trends
        for step in [step for step in trend.steps if is_event(trend.metric, step)][-1:]
        if rule.wants(is_worse=step.is_worse)
        and context.is_recent(step.day)
        and (rule.at_least is None or min(abs(step.low), abs(step.high)) >= rule.at_least)
    ]


def _beside(member: EventMember, members: Sequence[EventMember]) -> list[EventMember]:
    """Return the steps of the same case, on boards of the same type, that go the same way at about the same time."""

    def kind(step: EventMember) -> tuple[SeriesKey, str, bool]:
        return step.series.key.of_type(), step.series.metric, isinstance(step.finding, Step) and step.finding.size > 0

    near = [other for other in members if abs(other.finding.day - member.finding.day) <= SAME_EVENT_DAYS]
    return [other for other in near if kind(other) == kind(member)]


def _drifts(rule: AlertRule, context: FiringContext) -> Iterator[AlertFinding]:
    for trend in context.trends(rule):
        if trend.drift is not None and context.is_recent(trend.drift.last_day) and rule.wants(is_worse=trend.drift.is_worse):
            yield _of_series(trend, "drift", trend_text.drift_text(trend.metric, trend.drift), trend.drift.day)


def _limits(rule: AlertRule, context: FiringContext) -> Iterator[AlertFinding]:
    # A rule has one of the two.
    side, limit = ("above", rule.above) if rule.above is not None else ("below", rule.below or 0.0)
    for trend in context.trends(rule):
        is_exceeded = trend.level > limit if side == "above" else trend.level < limit
        if is_exceeded and context.is_recent(trend.last_day):
            level = trend_text.since_text(trend.metric, trend.level, trend.begin_day)
            text = f"{level}, {side} the limit {trend_text.level_text(trend.metric, limit)}"
            yield _of_series(trend, "limit", text, trend.begin_day)


def _missing(rule: AlertRule, context: FiringContext) -> list[TrendEvent]:
    # One metric of a case is enough to report that its runs are missing.
    gaps: dict[SeriesKey, EventMember] = {}
    for trend in context.trends(rule):
        if missing := trend.missing(context.now_ns // NS_PER_DAY):
            gaps.setdefault(trend.key, EventMember(trend, missing))
    return device_events(list(gaps.values()))


def _invalid(rule: AlertRule, context: FiringContext) -> Iterator[AlertFinding]:
    for key in filter(rule.takes, context.history.series()):
        lately = context.history.points(key, context.history.last_day(key))
        runs = context.history.points(key) if lately and lately[-1].verdict.state == "invalid" else []
        newest = runs[-rule.runs :]
        if len(newest) == rule.runs and all(run.verdict.state == "invalid" for run in newest) and context.is_recent(newest[-1].day):
            begin = next((run for run in reversed(runs) if run.verdict.state != "invalid"), runs[0])
            valid = f"the last run that is not invalid was on {iso(begin.day)}"
            text = f"the newest {count(rule.runs, 'run')} are invalid, {valid}; newest run {newest[-1].id}"
            title = f"invalid: {key.device}, {key.case()}"
            yield AlertFinding(f"{key.device} | {key.case()}", title, text, newest[0].day, _facts(key))


def _outlying(rule: AlertRule, context: FiringContext) -> Iterator[AlertFinding]:
    keys = list(filter(rule.takes, context.history.series()))
    for kind in (kind for name in rule.metrics for kind in board_types(context.history, name, keys)):
        for unit in (unit for unit in kind.odd if rule.wants(is_worse=unit.is_worse)):
            apart = trend_text.amount_text(kind.metric, unit.apart)
            text = f"{apart} from {kind.boards - 1} other boards over {count(unit.cases, 'case')}"
            facts = {"fleet": kind.fleet, "board": kind.board, "device": unit.device, "metric": kind.metric}
            title = f"outlying board: {unit.device}, {METRICS[kind.metric].figure.title} {apart}"
            yield AlertFinding(f"{kind.fleet} | {unit.device} | {kind.metric}", title, text, 0, facts)


def _silent(rule: AlertRule, context: FiringContext) -> Iterator[AlertFinding]:
    """Yield the devices that are lost, or online without a record, for the hours of the rule."""
    is_lost = rule.kind == "device-lost"
    received = {} if is_lost else context.history.received_ns()
    for device in context.devices:
        since_ns = received.get((device.fleet, device.device), device.changed_ns)
        silent_h = (context.now_ns - since_ns) / NS_PER_HOUR
        is_of_rule = rule.fleet in (None, device.fleet) and rule.device in (None, device.device)
        if is_of_rule and device.state == ("lost" if is_lost else "online") and silent_h >= rule.hours:
            since = f"{stamp(since_ns)} UTC, {silent_h:.0f} h ago"
            lost = f"its connection broke at {since}: check power, network and board"
            stopped = f"it is online, but its last record came at {since}: check `edgemeter agent publish` there"
            facts = {"fleet": device.fleet, "device": device.device}
            title, text = f"{rule.kind.replace('-', ' ')}: {device.device}", lost if is_lost else stopped
            yield AlertFinding(" | ".join(facts.values()), title, text, since_ns // NS_PER_DAY, facts)


def _of_series(trend: SeriesTrend, kind: str, text: str, day: int, first_days: tuple[int, int] | None = None) -> AlertFinding:
    # The number of devices is not in the subject: one more board is not another alert.
    key, who = trend.key, trend.key.device or f"all {trend.key.board}"
    title = f"{kind}: {METRICS[trend.metric].figure.title} of {key.model} {key.precision} on {who}"
    return AlertFinding(f"{who} | {key.case()} | {trend.metric}", title, text, day, _facts(key) | {"metric": trend.metric}, first_days)


def _facts(key: SeriesKey) -> dict[str, str]:
    facts = {name: getattr(key, name) for name in ("fleet", "board", "device", "model", "precision")} | {"case": key.case()}
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
