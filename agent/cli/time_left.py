"""The one estimate of the time that a session still takes: of each part of each run that is to come, as long as it took before.

What a part took in the last run of its case counts first (a board that throttles gets slower), then what the run itself foresees, then
what the part took other cases, then the plan.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import fmean

import msgspec

from edgemeter.agent.cli.run_plan import SHORTEST_WARM_UP_S, START_S
from edgemeter.agent.contract.suite import Case
from edgemeter.agent.engine import job
from edgemeter.agent.session import session

START = "processes and imports"
CHECK = "outputs checked"  # What follows the timed part is short where nothing is scored.
PARTS = (
    START, "settle", "cool-down", "load", "prepare", "warm-up", "idle before", "timed", "idle after", CHECK, "accuracy", "agreement",
)  # fmt: skip
LIMITS = frozenset({"warm-up", "settle", "cool-down", "agreement"})  # Parts of which only the longest is known before.
# The parts that take the longer the larger a model is, as the root of its size: between not at all and in proportion.
_BY_SIZE = frozenset({"load", "timed", CHECK, "accuracy", "agreement"})
_WAITS = frozenset({"settle", "cool-down"})  # Parts that take as long for one case as for another, and in some runs no time.
MOST_TIMES = 4.0
_OF_START = 0.75  # A start is imports, of which a slow card makes more than of what comes after it.
# Of a wait whose end is not known, such as for a temperature, this share of its limit is expected at first.
_OF_LIMIT = 0.25
# A photograph through a model, on a fast board; a step of decoding beside what reading the weights takes, and how much cheaper prefill is.
ITEM_S = 0.03
STEP_S = 0.001
BYTES_PER_S = 5e9
PREFILL_TIMES = 8
_BRIEF_S = {"load": 0.5, "prepare": 0.1, CHECK: 0.2, "agreement": 2.0}


@dataclass(frozen=True, slots=True)
class Remaining:
    """About how many seconds are left; `is_all` is whether every part that is to come is known."""

    seconds: float
    is_all: bool


class TimeLeft:
    """Follows the events of a session; `clock` in seconds never runs back."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._run: session.RunBegins | None = None
        self._part = START
        self._begun_s = clock()
        self._stated_s: float | None = None
        self._done: job.RunProgress | None = None
        self._seen: set[str] = set()
        self._foreseen: dict[bytes, dict[str, float]] = defaultdict(dict)
        self._taken: dict[bytes, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        self._cases: dict[bytes, Case] = {}

    def note(self, event: "session.RunBegins | job.Event | session.RunEnds") -> None:
        """Take the next event."""
        if isinstance(event, job.RunProgress):
            self._done = event
        elif isinstance(event, session.RunBegins):
            self._run, self._seen = event, set()
            self._cases[_key(event.case)] = event.case
            self._enter(START, None)
        elif isinstance(event, job.Phase):
            self._leave()
            if self._run is not None:
                self._foreseen[_key(self._run.case)] |= event.later_s
            is_check = event.name == "accuracy" and self._run is not None and not _scores(self._run.case, self._run.repeat)
            self._enter(CHECK if is_check else event.name, event.seconds)
        elif isinstance(event, session.RunEnds):
            self._leave()
            if self._run is not None:
                for part in PARTS:
                    if part not in self._seen and _belongs(self._run.case, self._run.repeat, part):
                        self._taken[_key(self._run.case)][part].append(0.0)
            self._enter(START, None)

    def part_s(self) -> float | None:
        """Return the seconds that the present part still takes, None where that is not known."""
        gone_s = self._clock() - self._begun_s
        # After the last image comes what the score takes.
        if self._done is not None and 0 < self._done.done < self._done.total:
            return gone_s / self._done.done * (self._done.total - self._done.done)
        expected_s = self._expected_now_s()
        # What has lasted longer than expected takes as much longer again: of that nothing is known, but how large the error was.
        return None if expected_s is None else abs(expected_s - gone_s)

    def session_s(self) -> Remaining | None:
        """Return what all runs still take, None before the first."""
        if self._run is None:
            return None
        case, repeat = self._run.case, self._run.repeat
        later = PARTS[PARTS.index(self._part) + 1 :] if self._part in PARTS else ()
        to_come = [(case, repeat, part) for part in later]
        to_come += [(case, repeat, part) for case, repeat in self._run.coming for part in PARTS]
        known_s = [self.part_s(), *(self._expected_s(*of_run) for of_run in to_come)]
        guessed_s = [0.0, *(_guessed_s(case, part) * self._slowness() for case, _, part in to_come)]
        total_s = math.fsum(guess_s if part_s is None else part_s for part_s, guess_s in zip(known_s, guessed_s, strict=True))
        return Remaining(max(1.0, total_s), None not in known_s)

    def _enter(self, part: str, stated_s: float | None) -> None:
        self._part, self._begun_s, self._stated_s, self._done = part, self._clock(), stated_s, None

    def _leave(self) -> None:
        if self._run is not None:
            self._seen.add(self._part)
            self._taken[_key(self._run.case)][self._part].append(self._clock() - self._begun_s)

    def _start_s(self) -> float:
        """Return how long the newest process took to start, or has taken so far."""
        so_far_s = self._clock() - self._begun_s if self._part == START else 0.0
        if self._run is not None and (starts_s := self._taken[_key(self._run.case)][START]):
            return max(starts_s[-1], so_far_s)
        return max(START_S, so_far_s)

    def _slowness(self) -> float:
        """Return how many times as long things take here as planned: a small or busy board shows it when the process starts."""
        return math.pow(max(1.0, self._start_s() / START_S), _OF_START)

    def _expected_now_s(self) -> float | None:
        """Return how long the present part takes: as in earlier runs of the case, else as the run states it, else as foreseen."""
        if self._run is None:
            return self._stated_s
        if self._stated_s is not None and self._part not in LIMITS and not self._taken[_key(self._run.case)][self._part]:
            return self._stated_s
        expected_s = self._expected_s(self._run.case, self._run.repeat, self._part)
        if self._part in _WAITS and not expected_s and self._stated_s:
            return self._stated_s * _OF_LIMIT
        return expected_s

    def _expected_s(self, case: Case, repeat: int, part: str) -> float | None:
        """Return how long a part of a run takes, None where nothing is known of it."""
        if not _belongs(case, repeat, part):
            return 0.0
        if part in _WAITS:
            waits = [seconds for of_case in self._taken.values() for seconds in of_case[part]]
            return fmean(waits) if waits else 0.0
        key = _key(case)
        if of_case := self._taken[key][part]:
            return of_case[-1]
        if part in self._foreseen[key]:
            return self._foreseen[key][part]
        of_others = [
            (seconds[part][-1] if seconds[part] else self._foreseen[other][part]) * _scale(case, self._cases[other], part)
            for other, seconds in list(self._taken.items())
            if other in self._cases.keys() - {key}
            and (self._cases[other].output_tokens is None) == (case.output_tokens is None)
            and (seconds[part] or part in self._foreseen[other])
        ]
        return fmean(of_others) if of_others else self._planned_s(case, part)

    def _planned_s(self, case: Case, part: str) -> float | None:
        if part == START:
            return self._start_s()
        planned_s = _planned_s(case, part)
        return planned_s * self._slowness() if planned_s and part in _BRIEF_S else planned_s


def _key(case: Case) -> bytes:
    return msgspec.json.encode(case)


def _scores(case: Case, repeat: int) -> bool:
    return case.scored_on is not None and (case.accuracy == "every" or (case.accuracy == "first" and repeat == 0))


def _belongs(case: Case, repeat: int, part: str) -> bool:
    is_text = case.output_tokens is not None
    has: Mapping[str, bool] = {
        "settle": case.operating_point is not None,
        "cool-down": case.start_below_c is not None,
        "prepare": not is_text,
        CHECK: not is_text and not _scores(case, repeat),
        "accuracy": _scores(case, repeat),
        "agreement": case.agreement == "every" or (case.agreement == "first" and repeat == 0),
    }
    return has.get(part, True)


def _planned_s(case: Case, part: str) -> float | None:
    """Return how long a part takes by the plan; None of what depends on the model alone, or on the data."""
    planned: Mapping[str, float | None] = {
        "warm-up": (SHORTEST_WARM_UP_S + case.warm_up_seconds) / 2,
        # The run foresees its idle stretches, once it knows that there are any.
        "idle before": 0.0,
        "idle after": 0.0,
        "timed": case.seconds if case.seconds and case.output_tokens is None else None,
        **_BRIEF_S,
    }
    return planned.get(part)


def _guessed_s(case: Case, part: str) -> float:
    """Return roughly how long a part takes of which nothing is known yet, on a fast board."""
    if part == "timed":
        tokens = (case.output_tokens or 0) + (case.prompt_tokens or 0) / PREFILL_TIMES
        query_s = tokens * (STEP_S + _size(case.model) / BYTES_PER_S) if case.output_tokens is not None else ITEM_S
        return max(case.seconds, case.queries * query_s)
    if part != "accuracy" or case.data is None:
        return 0.0
    return (case.subset or _entries(case.data)) * ITEM_S


@cache
def _entries(folder: str) -> int:
    try:
        return sum(1 for _ in Path(folder).iterdir())
    except OSError:
        return 0


def _scale(case: Case, other: Case, part: str) -> float:
    """Return by how much a part takes longer for `case` than for `other`, by the sizes of their files and the tokens of a query."""
    if part not in _BY_SIZE or (part == "timed" and case.output_tokens is None):
        return 1.0
    tokens = [(each.prompt_tokens or 0) + (each.output_tokens or 0) for each in (case, other)]
    sizes = [_size(each.model) for each in (case, other)]
    by_tokens = tokens[0] / tokens[1] if all(tokens) else 1.0
    by_size = math.sqrt(sizes[0] / sizes[1]) if all(sizes) else 1.0
    return by_tokens * min(max(by_size, 1 / MOST_TIMES), MOST_TIMES)


def _size(model: str) -> int:
    try:
        return Path(model).stat().st_size
    except OSError:
        return 0
