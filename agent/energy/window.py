"""Windows of the monotonic clock: the timed part of a run, and the idle stretches before and after it."""

import msgspec

from edgemeter.agent.contract.record_figures import Stretch, Windows


class Window(msgspec.Struct, frozen=True):
    """A stretch of the monotonic clock."""

    start_ns: int
    end_ns: int

    @property
    def length_ns(self) -> int:
        """Return the length."""
        return self.end_ns - self.start_ns


def absolute_windows(windows: Windows) -> tuple[Window, Window | None, Window | None]:
    """Return the windows of a record: timed, idle before, idle after; monotonic clock."""
    start_ns = windows.timed_start_ns
    timed = Window(start_ns, start_ns + windows.timed_end_ns)
    return timed, _absolute(windows.idle_before, start_ns), _absolute(windows.idle_after, start_ns)


def _absolute(stretch: Stretch | None, start_ns: int) -> Window | None:
    return None if stretch is None else Window(stretch.start_ns + start_ns, stretch.end_ns + start_ns)
