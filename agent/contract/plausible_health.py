"""The part of a health report that can be true: a board may state anything, and people and programs act on what is shown of it."""

from collections.abc import Callable
from typing import Any

import msgspec

from edgemeter.agent.base.figures import printable
from edgemeter.agent.base.nanoseconds import NS_PER_DAY
from edgemeter.agent.contract.health import Health

# Wider than any board that is known: what lies outside was not measured.
MOST_RUNS, MOST_RECORDS, MOST_BYTES = 100_000, 1_000_000_000, 10**16
LONGEST_CERTIFICATE_NS, LONGEST_AHEAD_NS = 30 * 365 * NS_PER_DAY, NS_PER_DAY
LONGEST_S = 10**9
COLDEST_C, HOTTEST_C = -100.0, 250.0
MOST_ENTRIES = 32


def plausible_health(health: Health, now_ns: int) -> tuple[Health, tuple[str, ...]]:
    """Return what can be true of a report at `now_ns`, its texts on one line, and the names of what was left out."""
    doubts: list[str] = []

    def checked(name: str, value: Any, is_plausible: Callable[[Any], bool], otherwise: Any = None) -> Any:
        if value is None or is_plausible(value):
            return value
        doubts.append(name)
        return otherwise

    def within(name: str, value: Any, lowest: float, highest: float, otherwise: Any = None) -> Any:
        return checked(name, value, lambda number: lowest <= number <= highest, otherwise)

    replaced = msgspec.structs.replace
    runs, disk, clock = health.runs, health.disk, health.clock
    size_bytes = within("disk", disk.size_bytes, 1, MOST_BYTES)
    believed = replaced(
        health,
        sensors=health.sensors[:MOST_ENTRIES],
        certificate_not_after_ns=within("certificate", health.certificate_not_after_ns, 0, now_ns + LONGEST_CERTIFICATE_NS),
        clock=replaced(clock, offset_ms=within("clock", clock.offset_ms, -LONGEST_S * 1000, LONGEST_S * 1000)),
        disk=replaced(disk, size_bytes=size_bytes, free_bytes=within("disk", disk.free_bytes, 0, size_bytes or MOST_BYTES)),
        waiting_records=within("outbox", health.waiting_records, 0, MOST_RECORDS, 0),
        dropped_records=within("outbox", health.dropped_records, 0, MOST_RECORDS, 0),
        runs=replaced(
            runs,
            last_ns=within("last run", runs.last_ns, 0, now_ns + LONGEST_AHEAD_NS),
            verdicts=checked(
                "verdicts", runs.verdicts, lambda counts: len(counts) <= MOST_ENTRIES and sum(counts.values()) <= MOST_RUNS, {}
            ),
        ),
        temperatures_c=checked("temperatures", health.temperatures_c, _are_temperatures, {}),
        uptime_s=within("uptime", health.uptime_s, 0, LONGEST_S),
    )
    return _on_one_line(believed), tuple(dict.fromkeys(doubts))


def _are_temperatures(temperatures_c: dict[str, float]) -> bool:
    return len(temperatures_c) <= MOST_ENTRIES and all(COLDEST_C <= value <= HOTTEST_C for value in temperatures_c.values())


def _on_one_line(value: Any) -> Any:
    """Return a value with every text in it without line breaks, control characters and changes of direction."""
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, msgspec.Struct):
        return msgspec.structs.replace(value, **{name: _on_one_line(getattr(value, name)) for name in value.__struct_fields__})
    if isinstance(value, tuple):
        return tuple(map(_on_one_line, value))
    if isinstance(value, dict):
        return {_on_one_line(key): _on_one_line(entry) for key, entry in value.items()}
    return value
