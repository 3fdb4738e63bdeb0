"""Whether the answers of the timed part come again: some of its prompts are asked once more, each alone.

Greedy generation repeats itself. An engine in this process gives the same answer, or its run is invalid. A server sums in another order for
a batch of users than for one query, and behind what it has cached, so that its answers may part later on; but asked twice alone it gives
one answer.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, get_args

from edgemeter.agent.contract.record_accuracy import OutputCheck
from edgemeter.agent.generators import Generated, GeneratorAbilities

REPEATED_PROMPTS = 2
SERVER_REPETITIONS = 2
# How an answer compares: what `OutputCheck` counts, or nothing.
Outcome = Literal["varying", "differing"]


def check_answers(
    timed: Mapping[int, Generated], repeat: Callable[[int], Generated | None], abilities: GeneratorAbilities, *, overlap: bool
) -> OutputCheck:
    """Return how a few of the timed answers, by the numbers of their queries, compare with those that `repeat` gets.

    Repeated are queries of which the least was cached, as nothing is now: an engine may sum a long batch otherwise than its parts.
    """
    fewest = min(answer.cached_tokens or 0 for answer in timed.values())
    numbers = [number for number, answer in timed.items() if (answer.cached_tokens or 0) == fewest]
    compared, outcomes = 0, Counter[Outcome]()
    for number in [numbers[index] for index in sorted({0, len(numbers) // 2})[:REPEATED_PROMPTS]]:
        repetitions = range(1 if abilities.is_local else SERVER_REPETITIONS)
        answers = [answer for _ in repetitions if (answer := repeat(number)) is not None]
        if answers:
            compared += 1
            if outcome := _outcome(timed[number], answers, abilities, overlap=overlap):
                outcomes[outcome] += 1
    return OutputCheck(
        compared=compared,
        **{name: outcomes[name] for name in get_args(Outcome)},
    )


def _outcome(timed: Generated, repetitions: Sequence[Generated], abilities: GeneratorAbilities, *, overlap: bool) -> Outcome | None:
    first, last = repetitions[0], repetitions[-1]
    if not are_alike(first, last, abilities):
        return "varying" if first.cached_tokens == last.cached_tokens else None
    if are_alike(timed, first, abilities):
        return None
    if abilities.is_local or timed.text[:1] != first.text[:1]:
        return "differing"
    # A server sums a batch, and what follows a cached text, in another order.
    return None if overlap or timed.cached_tokens != first.cached_tokens else "varying"


def are_alike(answer: Generated, other: Generated, abilities: GeneratorAbilities) -> bool:
    """Return whether two answers are the same; estimated counts, which depend on how pieces were joined, are no part of them."""
    is_same_length = abilities.counts == "estimated" or answer.output_tokens == other.output_tokens
    return answer.ended == other.ended and is_same_length and common_ratio(answer, other) == 1.0


def common_ratio(answer: Generated, other: Generated) -> float:
    """Return how much of the longer answer both begin with, 0..1, of its characters."""
    first, second = answer.text, other.text
    common = [a == b for a, b in zip(first, second, strict=False)]
    return [*common, False].index(False) / max(len(first), len(second), 1) if first or second else 1.0
