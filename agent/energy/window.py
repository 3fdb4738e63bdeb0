"""Windows of the monotonic clock.

They are the timed part of a run, and the idle stretches before and after it.
"""

from typing import NamedTuple

import msgspec

from edgemeter.agent.contract.record_figures import Windows


class Window(msgspec.Struct, frozen=True):
    """A stretch of the monotonic clock."""

    start_ns: int
    end_ns: int

    @property
    def length_ns(self) -> int:
        return self.end_ns - self.start_ns


class RunWindows(NamedTuple):
    """The timed part of a run, and the idle stretches before and after it."""

    timed: Window
    idle_before: Window | None
    idle_after: Window | None


def absolute_windows(windows: Windows) -> RunWindows:
    """Return the windows of a record on the monotonic clock."""
    start_ns = windows.timed_start_ns
    before, after = (
        None if stretch_ns is None else Window(stretch_ns[0] + start_ns, stretch_ns[1] + start_ns)
        for stretch_ns in (windows.idle_before_ns, windows.idle_after_ns)
    )
    return RunWindows(Window(start_ns, start_ns + windows.timed_end_ns), before, after)
