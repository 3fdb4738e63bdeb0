"""Prompts of timed queries: synthetic ones, and those of a file."""

from typing import Protocol

from edgemeter.agent.generators import Prompt


class Prompts(Protocol):
    """Gives the prompt of each query by its number: 0, 1, ... are timed, -1, -2, ... come before them.

    Called outside the clock. The prompt of a number stays the same, so that a query can be repeated.
    """

    def of(self, number: int) -> Prompt:
        """Return the prompt of a query: tokens, or text or messages where the generator takes no tokens."""
