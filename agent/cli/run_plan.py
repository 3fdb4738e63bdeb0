"""The plan of a session: its runs and how long they take, shown before anything is imported that takes long."""

from collections.abc import Sequence

from edgemeter.agent.base.figures import count, duration
from edgemeter.agent.contract.suite import SETTLE_LIMIT_S, Case, seeks_rate

# About what a process with its imports and what is read before and after it take: less on a fast machine, more on a small board.
START_S = 1.0
SHORTEST_WARM_UP_S = 0.5
LABELS_SHOWN = 3


def announcement(cases: Sequence[Case]) -> str:
    """Return what will be measured, and how long that takes, in one line."""
    labels = [case.label for case in cases[:LABELS_SHOWN]]
    others_text = f" and {len(cases) - LABELS_SHOWN} more" if len(cases) > LABELS_SHOWN else ""
    modes = ", ".join(dict.fromkeys(case.mode for case in cases))
    return f"measuring {', '.join(labels)}{others_text}; mode {modes}; {expectation(cases, [_runs(case, cases) for case in cases])}"


def _runs(case: Case, cases: Sequence[Case]) -> int:
    """Return how many runs a case is: of one that runs together with others each time alone, with each other one, and with all."""
    members = sum(other.together == case.together for other in cases) if case.together else 1
    return case.repeats * {1: 1, 2: 2}.get(members, members + 1)


def expectation(cases: Sequence[Case], runs: Sequence[int]) -> str:
    """Return how many runs there are at most and how long they take, in words; `runs` are those of each case."""
    least_s = most_s = idle_s = cool_s = 0.0
    generated = 0
    for case, number in zip(cases, runs, strict=True):
        least_s += (START_S + SHORTEST_WARM_UP_S + case.seconds) * number
        most_s += (START_S + case.warm_up_seconds + case.seconds) * number
        # One of 64 single queries is never long enough for an energy, and does not idle.
        if case.seconds > 0 or case.output_tokens is not None or case.scenario != "single_stream":
            idle_s += 2 * case.idle_seconds * number
        cool_s += case.cool_down_limit_s * number if case.start_below_c is not None else 0.0
        generated += case.queries * number if case.output_tokens is not None else 0
    points = len({case.operating_point for case in cases})
    settle_s = SETTLE_LIMIT_S * points * max(runs) if any(case.operating_point for case in cases) else 0.0
    extras = [
        "about 8 more runs where the highest rate is searched for" if any(map(seeks_rate, cases)) else "",
        f"what {generated:,} queries of a language model take" if generated else "",
        f"{duration(idle_s)} of idle if there is a power sensor" if idle_s else "",
        f"at most {duration(settle_s)} in which the board settles" if settle_s else "",
        f"at most {duration(cool_s)} of cooling down" if cool_s else "",
        "the accuracy on the data" if any(case.scored_on and case.accuracy != "never" for case in cases) else "",
        "a check against other kernels" if any(case.agreement != "never" for case in cases) else "",
    ]
    text = ", ".join(filter(None, extras))
    return f"{count(sum(runs), 'run')}, {duration(least_s)} to {duration(most_s)}{', plus ' * bool(text)}{text}"
