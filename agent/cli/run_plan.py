"""The plan of a session: its runs and how long they take, shown before anything is imported that takes long."""

from collections.abc import Iterator, Sequence

from edgemeter.agent.base.figures import count, duration
from edgemeter.agent.contract.suite import SETTLE_LIMIT_S, Case, blocks_of, groups_of, seeks_rate

# About what a process with its imports and what is read before and after it take: less on a fast machine, more on a small board.
START_S = 1.0
SHORTEST_WARM_UP_S = 0.5
LABELS_SHOWN = 3


def announcement(cases: Sequence[Case]) -> str:
    """Return what will be measured, and how long that takes, in one line."""
    labels = [case.label for case in cases[:LABELS_SHOWN]]
    others_text = f" and {len(cases) - LABELS_SHOWN} more" if len(cases) > LABELS_SHOWN else ""
    modes = ", ".join(dict.fromkeys(case.mode for case in cases))
    return f"measuring {', '.join(labels)}{others_text}; mode {modes}; {_length(list(_blocks(cases)))}"


def _blocks(cases: Sequence[Case]) -> Iterator[tuple[Sequence[Case], int]]:
    """Yield the cases that run at the same time, and how often they do."""
    for group, members in groups_of(cases).items():
        if group is None:
            yield from (((case,), case.repeats) for case in members)
        else:
            rounds = max(case.repeats for case in members)
            yield from (([members[member] for member in block], rounds) for block in blocks_of(len(members)))


def expectation(cases: Sequence[Case], runs: Sequence[int]) -> str:
    """Return how many runs there are at most and how long they take, in words; `runs` are those of each case, one after the other."""
    return _length([((case,), number) for case, number in zip(cases, runs, strict=True)])


def _length(blocks: Sequence[tuple[Sequence[Case], int]]) -> str:
    least_s = most_s = idle_s = cool_s = 0.0
    generated = 0
    for block, times in blocks:
        longest_s = max(case.seconds for case in block)
        least_s += (START_S + SHORTEST_WARM_UP_S + longest_s) * times
        most_s += (START_S + max(case.warm_up_seconds for case in block) + longest_s) * times
        # One of 64 single queries is never long enough for an energy, and does not idle.
        idles = [case for case in block if case.seconds > 0 or case.output_tokens is not None or case.scenario != "single_stream"]
        idle_s += 2 * max((case.idle_seconds for case in idles), default=0.0) * times
        cool_s += max((case.cool_down_limit_s for case in block if case.start_below_c is not None), default=0.0) * times
        generated += sum(case.queries for case in block if case.output_tokens is not None) * times
    cases = [case for block, _ in blocks for case in block]
    runs = sum(len(block) * times for block, times in blocks)
    points = len({case.operating_point for case in cases})
    settle_s = SETTLE_LIMIT_S * points * max(times for _, times in blocks) if any(case.operating_point for case in cases) else 0.0
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
    return f"{count(runs, 'run')}, {duration(least_s)} to {duration(most_s)}{', plus ' * bool(text)}{text}"
