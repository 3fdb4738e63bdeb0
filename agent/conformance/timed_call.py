"""Where a runtime does its work: in the call that is timed, or before or after it.

Judged by the shortest of several times, to which load only adds: a call that does the work never takes less than it; one that only starts
the work, or passes on what was computed elsewhere, does at least once, however busy the machine.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TypeVar

import numpy as np

from edgemeter.agent.conformance.promise import require
from edgemeter.agent.runtimes import Array, Runtime

# Rounds that count; the first two, which compile and allocate, do not. More where the outcome is not clear, fewer where a round is long.
ROUNDS, MOST_ROUNDS, FEWEST_ROUNDS, LONG_S = 7, 21, 3, 30.0
# The least share of the shortest way from inputs to values that a call takes; up to half of it and from twice as much the outcome is clear.
SHARE = 0.2
# What is shorter does not show against the start of a thread, and what is read later may be faster by the other.
LARGE_NS, LATE_NS = 5_000_000, 1_000_000
NS_PER_MS = 1e6
Result = TypeVar("Result")
# So long after the outputs were read they are read again: of the first rounds long enough for work that nothing waited for.
LATE_S = (0.02, 0.2)
# What is broken where the call is short in a way of a round.
PROMISES = {
    "after a pause": "bind starts nothing",
    "on inputs that were bound before": "the call does the work each time, and keeps no results by their inputs",
    "when repeated": "the call does the work each time, and keeps no result",
}


@dataclass(frozen=True, slots=True)
class Way:
    """The times of one way from inputs to values, in ns: to bind, to call, to read the outputs at once and, after a pause, again.

    Those of reading are without waits for a core, `way_ns` of all together is with them, as is that of the call.
    """

    bind_ns: int
    call_ns: int
    read_ns: int
    late_ns: int
    way_ns: int


def require_work_in_the_call(runtime: Runtime, inputs: Sequence[Array]) -> None:
    """Return if the calls of a loaded model do its work; it takes long enough to judge, and `inputs` are some of its inputs.

    Raises:
        ContractViolationError: they do not, or the work is too short.
    """
    ways = _ways(runtime, inputs)
    plain = ways["at once"]
    work_ns, call_ns = _shortest(plain), min(way.call_ns for way in plain)
    require(
        work_ns >= LARGE_NS,
        f"from bind to outputs the model takes {work_ns / NS_PER_MS:.3g} ms, and below {LARGE_NS / NS_PER_MS:g} ms it does not show where: "
        "give the case `large`, a model that takes longer, and its inputs",
    )
    _require_no_work_elsewhere(plain, is_short=call_ns < SHARE * work_ns)
    for kind, promise in PROMISES.items():
        shortest_ns = min(way.call_ns for way in ways[kind])
        words = f"{kind} the call takes {shortest_ns / NS_PER_MS:.3g} ms, else {call_ns / NS_PER_MS:.3g} ms"
        require(shortest_ns >= SHARE * work_ns, f"{promise}: {words}")


def _require_no_work_elsewhere(ways: Sequence[Way], *, is_short: bool) -> None:
    """Return if neither bind nor reading the outputs takes long; `is_short` is whether the shortest call does too little."""
    bind_ns, call_ns, read_ns, late_ns = (
        median(getattr(way, name) for way in ways) for name in ("bind_ns", "call_ns", "read_ns", "late_ns")
    )
    bind_ms, call_ms, read_ms, late_ms = (took_ns / NS_PER_MS for took_ns in (bind_ns, call_ns, read_ns, late_ns))
    took = (
        f"bind takes {bind_ms:.3g} ms, the call {call_ms:.3g} ms, reading the outputs {read_ms:.3g} ms, and {late_ms:.3g} ms somewhat later"
    )
    require(not is_short or bind_ns < read_ns, f"bind computes nothing: {took}")
    is_there = read_ns < 2 * late_ns + LATE_NS
    require(is_there, f"the call waits until its results are there: {took}")
    require(not is_short and late_ns < call_ns + LATE_NS, f"outputs compute nothing: {took}")


def _shortest(ways: Sequence[Way]) -> int:
    return min(way.way_ns for way in ways)


def _ways(runtime: Runtime, inputs: Sequence[Array]) -> dict[str, list[Way]]:
    """Return what the ways of all rounds took, by what was particular about them."""
    ways: defaultdict[str, list[Way]] = defaultdict(list)
    begin, fresh = time.monotonic(), 0
    for number in range(2 + MOST_ROUNDS):
        if number == 2:
            ways.clear()
        fresh += 2
        way, call = _way(runtime, _other(inputs, fresh), late_s=LATE_S[number < 2 + FEWEST_ROUNDS])
        ways["at once"].append(way)
        pause_s = 2 * _shortest(ways["at once"]) / 1e9
        ways["when repeated"].append(_called(runtime, call, way.bind_ns))
        ways["after a pause"].append(_way(runtime, _other(inputs, fresh + 1), pause_s=pause_s)[0])
        ways["on inputs that were bound before"].append(_way(runtime, inputs)[0])
        rounds = number - 1
        if rounds >= FEWEST_ROUNDS and (time.monotonic() - begin > LONG_S or (rounds >= ROUNDS and _is_clear(ways))):
            break
    return ways


def _is_clear(ways: dict[str, list[Way]]) -> bool:
    shares = [min(way.call_ns for way in of_kind) / _shortest(ways["at once"]) for of_kind in ways.values()]
    return not any(SHARE / 2 < share < 2 * SHARE for share in shares)


def _other(inputs: Sequence[Array], number: int) -> list[Array]:
    """Return inputs of the same values in another order, another one for each number."""
    return [np.roll(array, number).copy() for array in inputs]


def _way(
    runtime: Runtime, inputs: Sequence[Array], *, pause_s: float = 0.0, late_s: float | None = None
) -> tuple[Way, Callable[[], object]]:
    call, bind_ns, _ = _timed(lambda: runtime.bind(inputs))
    time.sleep(pause_s)
    return _called(runtime, call, bind_ns, late_s=late_s), call


def _called(runtime: Runtime, call: Callable[[], object], bind_ns: int, *, late_s: float | None = None) -> Way:
    # What is lazy computes when it becomes an array.
    def read() -> list[Array]:
        return [np.array(output) for output in runtime.outputs()]

    _, call_ns, _ = _timed(call)
    values, took_ns, read_ns = _timed(read)
    way_ns = bind_ns + call_ns + took_ns
    if late_s is None:
        return Way(bind_ns, call_ns, read_ns, 0, way_ns)
    time.sleep(late_s + 2 * way_ns / 1e9)
    later, _, late_ns = _timed(read)
    is_there = len(values) == len(later) and all(
        np.array_equal(*pair, equal_nan=pair[0].dtype.kind in "fc") for pair in zip(values, later, strict=True)
    )
    require(is_there, "the call waits until its results are there: outputs somewhat later are others than at once")
    return Way(bind_ns, call_ns, read_ns, late_ns, way_ns)


def _timed(action: Callable[[], Result]) -> tuple[Result, int, int]:
    """Return the result, what it took, in ns, and that less the waits of this thread for a core, or less most of them."""
    begin_ns = time.monotonic_ns()
    before_ns = _waited_ns()
    result = action()
    waited_ns = _waited_ns() - before_ns
    took_ns = time.monotonic_ns() - begin_ns
    return result, took_ns, took_ns - waited_ns


def _waited_ns() -> int:
    """Return for how long this thread has waited for a core; 0 where the kernel does not count it."""
    with suppress(OSError, ValueError, IndexError):
        return int(Path("/proc/thread-self/schedstat").read_text(encoding="ascii").split()[1])
    return 0
