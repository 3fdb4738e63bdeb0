"""Compilations of a just-in-time compiler: how many, and when each began, so that a run shows whether one fell into its timed part."""

import time
from collections.abc import Callable
from functools import wraps
from typing import Any

# The times of the last ones: enough to see that the timed part holds some.
KEPT = 16


class Compilations:
    """Counts compilations; the facts have times of the monotonic clock, which the rule `recompiled` compares with the timed part."""

    def __init__(self) -> None:
        self._began_ns: list[int] = []

    def note(self) -> None:
        """Count one that begins now."""
        self._began_ns.append(time.monotonic_ns())

    def counted(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that counts its calls: a compiler that traces calls it once for each compilation."""

        @wraps(function)
        def traced(*arguments: Any, **named: Any) -> Any:
            self.note()
            return function(*arguments, **named)

        return traced

    def facts(self) -> dict[str, str]:
        """Return the count, and when the last ones began."""
        return {"compilations": str(len(self._began_ns)), "compiled_ns": " ".join(map(str, self._began_ns[-KEPT:]))}
