"""Simulated boards join through the real service and measure a job in waves.

Usage: `python -m tools.fleet.thousand`. The last line is JSON.
"""

import argparse
import json
import os
import random
import re
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from tests.fixtures.mqtt_peer import wait_until
from tools.chaos.supervised import Supervised
from tools.chaos.world import end_by_signal, say
from tools.fleet.drill import LONG_S, Drill
from tools.fleet.fleet_server import served
from tools.fleet.simulated_boards import OVERLAP, board_name

# A process that waits for its connections by select(2) has room for a third of 1,024.
BOARDS_A_PROCESS = 250


def main() -> int:
    """Run it; return 0 when each board has measured once."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.fleet.thousand", description="Join, order, count; and what it costs."
    )
    parser.add_argument("--boards", type=int, default=1000)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="edgemeter-fleet-") as name, ExitStack() as stack:
        folder = Path(name)
        server = stack.enter_context(served(folder))
        names = [board_name(number) for number in range(arguments.boards)]
        drill = Drill(server, names, stack, random.Random(1), say)  # noqa: S311 - nothing is drawn
        costs = {"at the start": _costs(drill.servers)}
        logs = [folder / f"boards-{first}.log" for first in range(0, len(names), BOARDS_A_PROCESS)]
        with drill.step("joined"):
            server.command("token", *names, "--output", folder / "join")
            for number, log in enumerate(logs):
                first = number * BOARDS_A_PROCESS
                count = min(BOARDS_A_PROCESS, len(names) - first)
                command = [
                    sys.executable,
                    "-m",
                    "tools.fleet.simulated_boards",
                    str(folder),
                    str(first),
                    str(count),
                ]
                process = Supervised(log.stem, command, log)
                stack.callback(process.stop)
                process.start()
            is_online = wait_until(
                lambda: list(drill.presence().values()) == ["online"] * len(names), LONG_S
            )
            drill.note_unless(is_online, "not all are online")
        costs["joined"] = _costs(drill.servers)
        with drill.step("a job in waves"):
            jobs = [drill.order("--waves", "10,10%,50%")]
            drill.killed_until_done(jobs, 0, drill.servers)
            drill.judge_measured(jobs, names)
        costs["measured"] = _costs(drill.servers)
        drill.outcome.faults += [
            line
            for log in logs
            for line in log.read_text().splitlines()
            if line.startswith(OVERLAP)
        ]
    for fault in drill.outcome.faults[:20]:
        say(fault)
    print(json.dumps(drill.outcome.document() | {"costs": costs}))
    return 1 if drill.outcome.faults else 0


def _costs(processes: list[Supervised]) -> dict[str, dict[str, float]]:
    """Return seconds of the processor and resident MB of each process, by its name."""
    return {process.name: _cost(process.pid()) for process in processes}


def _cost(pid: int | None) -> dict[str, float]:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    ticks = int(fields[11]) + int(fields[12])
    status = Path(f"/proc/{pid}/status").read_text()
    sizes_kb = {
        name: int(re.search(rf"{name}:\s+(\d+) kB", status)[1]) for name in ("VmRSS", "VmHWM")
    }  # type: ignore[index]
    mb = {"resident_mb": sizes_kb["VmRSS"] * 1024 / 1e6, "peak_mb": sizes_kb["VmHWM"] * 1024 / 1e6}
    return {
        "processor_s": ticks / os.sysconf("SC_CLK_TCK"),
        **{name: round(value, 1) for name, value in mb.items()},
    }


if __name__ == "__main__":
    end_by_signal()
    sys.exit(main())
