"""Prompts of timed queries: synthetic ones, those of a file, turns of conversations, and the lengths of a trace of requests."""

from typing import Protocol

from edgemeter.agent.generators import Generated, Limits, Prompt


class Prompts(Protocol):
    """Gives the prompt of each query by its number: 0, 1, ... are timed, -1, -2, ... come before them.

    Called outside the clock. The prompt of a number stays the same, so that a query can be repeated.
    """

    def of(self, number: int) -> Prompt:
        """Return the prompt of a query: tokens, or text or messages where the generator takes no tokens."""

    def limits(self, number: int, limits: Limits) -> Limits:  # noqa: ARG002 - those of the case
        """Return when this query ends, where the case says `limits`."""
        return limits

    def answered(self, number: int, answer: Generated) -> None:
        """Take note of an answer, on which later prompts may depend."""
        del number, answer
