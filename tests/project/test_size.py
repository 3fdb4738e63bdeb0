"""Facts about the size of the project: each room has a number of lines, and grows only where another shrinks.

Whoever makes a room larger lowers the number of another one, or writes the reason beside the number here. Whoever makes one smaller lowers
its number: `python -m tests.project.test_size` prints the lines as they are.
"""

from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("agent", "collector", "models", "provisioning")
# Lines of Python, blank ones and comments too.
LINES = {
    "agent": 6,
    "agent/api": 522,
    "agent/base": 6541,
    "agent/bundle": 632,
    "agent/cli": 2532,
    "agent/contract": 3961,
    "agent/daemon": 345,
    "agent/datasets": 1539,
    "agent/delivery": 2110,
    "agent/doctor": 649,
    "agent/energy": 1241,
    "agent/engine": 4299,
    "agent/generators": 1247,
    "agent/health": 576,
    "agent/identity": 730,
    "agent/jobs": 1863,
    "agent/ledger": 1981,
    "agent/machine": 1407,
    "agent/operating": 302,
    "agent/power": 2982,
    "agent/power_logs": 340,
    "agent/profile": 556,
    "agent/quality": 65,
    "agent/recognition": 613,
    "agent/runtimes": 4351,
    "agent/sandbox": 551,
    "agent/session": 1684,
    "agent/settings": 272,
    "agent/tasks": 2159,
    "agent/update": 355,
    "agent/verdict": 976,
    "agent/vision": 2314,
    "collector": 1,
    "collector/alerts": 715,
    "collector/charts": 483,
    "collector/cli": 2358,
    "collector/compare": 2394,
    "collector/datacenter": 486,
    "collector/demo": 364,
    "collector/export": 109,
    "collector/influx": 770,
    "collector/ledgers": 69,
    "collector/postgresql": 661,
    "collector/published": 872,
    "collector/receive": 1206,
    "collector/runs": 1093,
    "collector/show": 1083,
    "collector/trend": 3493,
    "collector/units": 83,
    "collector/upkeep": 201,
    "collector/web": 3042,
    "models": 1,
    "models/catalogue": 352,
    "models/cli": 714,
    "models/convert": 1485,
    "models/fetch": 206,
    "provisioning": 1,
    "provisioning/apply": 874,
    "provisioning/cli": 1162,
    "provisioning/content": 116,
    "provisioning/elsewhere": 409,
    "provisioning/health": 413,
    "provisioning/https": 248,
    "provisioning/identity": 1182,
    "provisioning/image": 555,
    "provisioning/inventory": 283,
    "provisioning/jobs": 1282,
    "provisioning/registry": 596,
    "provisioning/release": 1448,
    "provisioning/serve": 323,
    "provisioning/update": 189,
    "tests": 81061,
}
# A room may have so many lines fewer before its number is lowered.
SLACK = 40


def lines_by_room() -> dict[str, int]:
    """Return the lines of Python in each folder of a package, and in `tests`."""
    lines: Counter[str] = Counter()
    for package in (*PACKAGES, "tests"):
        for path in (ROOT / package).rglob("*.py"):
            parts = path.relative_to(ROOT).parts
            room = "tests" if package == "tests" else "/".join(parts[:2] if len(parts) > 2 else parts[:1])
            lines[room] += len(path.read_text(encoding="utf-8").splitlines())
    return {room: count for room, count in sorted(lines.items()) if count}


def test_no_room_is_larger_than_its_number():
    """A new room needs a number too, taken from others."""
    assert {room: count for room, count in lines_by_room().items() if count > LINES.get(room, 0)} == {}


def test_a_room_that_shrank_lowers_its_number():
    """So that the next change cannot take the room again; one that is gone leaves the list."""
    lines = lines_by_room()
    assert {room: lines.get(room, 0) for room, number in LINES.items() if number > lines.get(room, 0) + SLACK} == {}


if __name__ == "__main__":
    for counted_room, count in lines_by_room().items():
        print(f'    "{counted_room}": {count},')
