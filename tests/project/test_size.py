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
    "agent/api": 459,
    "agent/base": 6094,
    "agent/bundle": 1098,
    "agent/cli": 3856,
    "agent/contract": 5710,
    "agent/daemon": 348,
    "agent/datasets": 1347,
    "agent/delivery": 1963,
    "agent/doctor": 644,
    "agent/energy": 4155,
    "agent/engine": 5975,
    "agent/generators": 2547,
    "agent/health": 580,
    "agent/identity": 838,
    "agent/jobs": 1878,
    "agent/ledger": 1813,
    "agent/machine": 1535,
    "agent/operating": 1074,
    "agent/power": 3453,
    "agent/profile": 564,
    "agent/quality": 287,
    "agent/recognition": 1140,
    "agent/runtimes": 5201,
    "agent/sandbox": 1140,
    "agent/session": 2387,
    "agent/settings": 236,
    "agent/tasks": 1929,
    "agent/update": 468,
    "agent/verdict": 1692,
    "agent/vision": 2120,
    "collector": 1,
    "collector/alerts": 1841,
    "collector/charts": 888,
    "collector/choose": 1261,
    "collector/cli": 2730,
    "collector/compare": 2237,
    "collector/datacenter": 479,
    "collector/demo": 517,
    "collector/export": 114,
    "collector/index": 1634,
    "collector/influx": 2178,
    "collector/ledgers": 77,
    "collector/postgresql": 715,
    "collector/published": 1064,
    "collector/receive": 2257,
    "collector/review": 908,
    "collector/runs": 797,
    "collector/show": 1647,
    "collector/store": 104,
    "collector/trend": 3451,
    "collector/units": 80,
    "collector/upkeep": 244,
    "collector/web": 4505,
    "models": 1,
    "models/builder": 1521,
    "models/catalogue": 527,
    "models/cli": 1016,
    "models/convert": 2836,
    "models/fetch": 691,
    "provisioning": 1,
    "provisioning/apply": 1305,
    "provisioning/campaigns": 480,
    "provisioning/cli": 2007,
    "provisioning/content": 523,
    "provisioning/elsewhere": 1338,
    "provisioning/fat": 1082,
    "provisioning/health": 778,
    "provisioning/identity": 2000,
    "provisioning/image": 1162,
    "provisioning/inventory": 444,
    "provisioning/jobs": 1340,
    "provisioning/registry": 888,
    "provisioning/release": 1383,
    "provisioning/serve": 400,
    "provisioning/update": 1017,
    "tests": 85794,
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
