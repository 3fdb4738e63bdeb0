"""What came of a device: step by step, and in one word."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

State: TypeAlias = Literal["ok", "changed", "skipped", "failed"]


@dataclass(frozen=True, slots=True)
class Step:
    """One step on one device: what it came to, and in which respect."""

    step: str
    state: State
    detail: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """All of one device; `remedy` is why it failed and what to do."""

    device: str
    host: str
    found: str | None
    steps: tuple[Step, ...]
    remedy: str | None

    @property
    def state(self) -> State:
        """Return failed, changed, or ok: nothing had to be done."""
        if self.remedy is not None:
            return "failed"
        return "changed" if any(step.state == "changed" for step in self.steps) else "ok"
