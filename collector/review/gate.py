"""The gate of a review: limits that a change must keep, `slower:3%,energy:5%,ap:0.5`, and what became of each.

A limit is decided like every comparison, with the limit as the smallest difference that matters. It is violated where the figure is worse
by more than it and the 95% interval shows that it is worse at all, and not judged where that may be chance, where there is no interval,
where one side was measured on one day only and not in turn with the other, or where a step is suspected within a side. The gate stays
closed where a limit is violated, and in doubt: where such a figure, or an accuracy, is beyond the limit, or no case was judged.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from edgemeter.agent.base.decision import ACCURACY, MEMORY, decide
from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.metrics import gain
from edgemeter.collector.compare.judged_figures import JUDGED
from edgemeter.collector.compare.judgement import Judgement, judge_figure, speed_of, why_not_compared
from edgemeter.collector.review.review import Review, ReviewPair
from edgemeter.collector.runs.figure_names import figure_called

LimitOutcome = Literal["kept", "violated", "not judged"]
GateState = Literal["open", "violated", "could not judge"]
# A limit of what a case's speed is: of an offline load throughput.
SLOWER = "slower"
EXAMPLE = "slower:3%,energy:5%,ap:0.5"
IN_DOUBT = "in doubt a gate stays closed"


@dataclass(frozen=True, slots=True)
class GateLimit:
    """By how much a figure may be worse: a ratio, or of accuracy and of shares the difference (0..1). `text` is how it was written."""

    figure: str
    by: float
    text: str


@dataclass(frozen=True, slots=True)
class GateFinding:
    """The result of a limit for a case (None: all); `is_closing`: it keeps the gate closed; `why` is the reason where it is not judged.

    `used` is the share of the limit by which the figure is worse, 0 where it is no worse, `used_at_most` the same of the worse end of the
    95% interval; None where there is none.
    """

    limit: GateLimit
    case: str | None
    outcome: LimitOutcome
    words: str
    is_closing: bool = False
    why: str = ""
    used: float | None = None
    used_at_most: float | None = None

    @property
    def share_text(self) -> str:
        """The share in words: `used 40% of the limit (upper bound 95%)`; empty where there is none."""
        if self.used is None:
            return ""
        bound = "no interval" if self.used_at_most is None else f"upper bound {self.used_at_most:.0%}"
        return f"used {self.used:.0%} of the limit ({bound})"


def parse(text: str) -> tuple[GateLimit, ...]:
    """Return the limits in `text`; raises ConfigError if it is no such list."""
    return tuple(_limit(part.strip(), text) for part in text.split(","))


def judge(review: Review, limits: Sequence[GateLimit]) -> list[GateFinding]:
    """Return what became of each limit for each case, and the lost cases; raises ConfigError if a speed or energy is of two boards."""
    _refuse_other_boards(review, limits)
    findings: list[GateFinding] = []
    for limit in limits:
        of_limit = [_finding(pair, limit) for pair in review.pairs]
        lost = [case for case in review.left_out if case.is_lost]
        findings += of_limit
        is_judged = any(finding.outcome != "not judged" for finding in of_limit)
        if not (is_judged or lost or any(finding.is_closing for finding in of_limit)):
            why = "; ".join(dict.fromkeys(finding.why for finding in of_limit)) or "no case is on both sides"
            findings.append(GateFinding(limit, None, "not judged", f"could not judge: {why}; {IN_DOUBT}", is_closing=True))
        # Where nothing was measured that could be judged, a case without usable runs shows no change for the worse.
        outcome: LimitOutcome = "violated" if is_judged else "not judged"
        findings += [GateFinding(limit, case.what, outcome, case.reason, is_closing=True) for case in lost]
    return findings


def _refuse_other_boards(review: Review, limits: Sequence[GateLimit]) -> None:
    """One board on each side does not tell a change from the spread of its type: at 2% one pair of seven breaks a limit of 3%."""
    limit = next((limit for limit in limits if limit.figure not in (MEMORY, ACCURACY)), None)
    other = next((pair for pair in review.pairs if pair.case.device != pair.baseline.device), None)
    if limit is not None and other is not None:
        raise ConfigError(
            f"{limit.text} cannot be judged across two boards ({other.baseline.key.device} and {other.case.key.device}), because boards of "
            "one type differ by themselves: measure both sides on one board; memory and ap can be limited across boards"
        )


def state_of(findings: Sequence[GateFinding]) -> GateState:
    """Return what became of the gate: `open`, a limit is `violated`, or it stays closed because it `could not judge`."""
    closing = [finding for finding in findings if finding.is_closing]
    if not closing:
        return "open"
    return "violated" if any(finding.outcome == "violated" for finding in closing) else "could not judge"


def _limit(part: str, text: str) -> GateLimit:
    figure, _, by = part.partition(":")
    try:
        value = float(by.removesuffix("%")) / 100
    except ValueError:
        value = -1.0
    try:
        name = SLOWER if figure == SLOWER else figure_called(figure, JUDGED.values()).name
    except ConfigError as error:
        raise ConfigError(f"{part!r} in {text!r} is not a limit: {error}; write {EXAMPLE}") from error
    if by.endswith("%") == (name == ACCURACY) or not 0 <= value < 10:
        takes = "points of 100" if name == ACCURACY else "a percentage"
        raise ConfigError(f"{part!r} in {text!r} is not a limit: {figure} takes {takes}; write {EXAMPLE}")
    return GateLimit(name, value, part)


def _finding(pair: ReviewPair, limit: GateLimit) -> GateFinding:
    figure = speed_of(pair.case) if limit.figure == SLOWER else limit.figure
    judged = judge_figure(figure, pair.case, pair.baseline, pair.ratios, limit.by)
    if judged is None:
        why = f"no {JUDGED[figure].title}: {why_not_compared(figure, pair.case, pair.baseline)}"
        return GateFinding(limit, pair.name, "not judged", why, why=why)
    used, used_at_most = _shares(judged, limit)
    # Whether the figure itself, chance apart, is worse by more than the limit.
    value = judged.decision.value
    exact = None if value is None else decide(value, (value, value), limit.by, judged.decision.scale)
    is_beyond = exact is not None and exact.is_beyond_margin and exact.outcome != judged.better
    # What cannot be judged, whatever its interval is, has a reason: too few runs, one day, or a suspected step.
    why = (judged.decision.reason or judged.decision.caution) if judged.outcome in ("not judged", "not settled") else ""
    if why or (is_beyond and judged.outcome == "not settled"):
        # More runs settle a ratio; the accuracy on these images stays what it is.
        is_closing = is_beyond and (bool(why) or figure == ACCURACY)
        words = f"{judged.words}; {IN_DOUBT}" if is_closing else judged.words
        why = why or "the differences may be chance: measure more runs"
        return GateFinding(limit, pair.name, "not judged", words, is_closing, why, used, used_at_most)
    outcome: LimitOutcome = "violated" if is_beyond else "kept"
    return GateFinding(limit, pair.name, outcome, judged.words, is_beyond, used=used, used_at_most=used_at_most)


def _shares(judged: Judgement, limit: GateLimit) -> tuple[float | None, float | None]:
    """Return the shares of a limit that the figure and the worse end of its interval use; None of a limit of 0, which has no shares."""
    value, bounds, is_ratio = judged.decision.value, judged.decision.bounds, judged.decision.scale == "ratio"
    if value is None or limit.by == 0:
        return None, None

    def share(change: float) -> float:
        worse = (change if judged.better == "lower" else 1 / change) - 1 if is_ratio else -gain(change, judged.better)
        return max(0.0, worse) / limit.by

    return share(value), None if bounds is None else max(map(share, bounds))
