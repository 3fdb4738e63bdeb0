"""When the parts of a run were: as its process tells it, on the monotonic clock, and as it stands in the record."""

from edgemeter.agent import records
from edgemeter.agent.engine.job import Measured, Window


def relative(measured: Measured) -> records.Windows:
    """Return the windows of a run, counted from its first timed query."""
    start_ns = measured.timed.start_ns
    return records.Windows(
        timed_start_ns=start_ns,
        timed_end_ns=measured.timed.end_ns - start_ns,
        idle_before=_stretch(measured.idle_before, start_ns),
        idle_after=_stretch(measured.idle_after, start_ns),
    )


def absolute(said: records.Windows) -> tuple[Window, Window | None, Window | None]:
    """Return the windows that `relative` took: timed, idle before, idle after; monotonic clock."""
    start_ns = said.timed_start_ns
    timed = Window(start_ns, start_ns + said.timed_end_ns)
    return timed, _window(said.idle_before, start_ns), _window(said.idle_after, start_ns)


def _stretch(window: Window | None, start_ns: int) -> records.Stretch | None:
    return None if window is None else records.Stretch(start_ns=window.start_ns - start_ns, end_ns=window.end_ns - start_ns)


def _window(stretch: records.Stretch | None, start_ns: int) -> Window | None:
    return None if stretch is None else Window(stretch.start_ns + start_ns, stretch.end_ns + start_ns)
