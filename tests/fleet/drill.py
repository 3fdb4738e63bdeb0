"""The drill: a job, two in waves and an update on a crowd of devices, with kills at given points, and what came of it."""

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass

from tests.fleet.fleet_world import KILLS, FleetWorld

LOOK_S = 0.2


@dataclass(frozen=True, slots=True)
class Came:
    """What came of a drill; it holds when every job was executed once on every device."""

    devices: int
    runs_expected: int
    runs_executed: int
    updates_done: int
    executed_twice: int
    never_executed: int
    overlaps: int
    states: dict[str, int]
    jobs: dict[str, int]
    records_in_ledger: int
    kills: int
    in_time: bool

    @property
    def holds(self) -> bool:
        """Whether each job was executed once, everything is covered, and every record arrived."""
        return (
            self.in_time
            and self.executed_twice == self.never_executed == self.overlaps == 0
            and self.states == {"done": 3 * self.devices}
            and self.updates_done == self.devices
            and self.jobs == {"done": 3}
            and self.records_in_ledger == self.runs_expected == self.runs_executed
        )

    def document(self) -> dict[str, object]:
        """Return it as JSON shows it."""
        return {**asdict(self), "holds": self.holds}


def drill(world: FleetWorld, limit_s: float, say: Callable[[str], None] = lambda _: None) -> Came:
    """Run it in a world that is up."""
    began_s, job = time.monotonic(), world.begin()
    say(f"{job}: {len(world.names)} devices")
    kills, in_time = list(KILLS), True
    while not (_is_over(world) and _has_ended(world)):
        if time.monotonic() - began_s > limit_s:
            in_time = False
            say("CAME TO A STANDSTILL")
            break
        if kills and world.progress() >= kills[0][0]:
            _, names, down_s = kills.pop(0)
            say(f"{world.progress():.0%}: {', '.join(names)}")
            for name in names:
                getattr(world, name).kill(down_s / len(names))
        time.sleep(LOOK_S)
    return _judge(world, job, len(KILLS) - len(kills), in_time=in_time)


def _is_over(world: FleetWorld) -> bool:
    return world.progress() >= 1.0 and not world.crowd.missing_receipts()


def _has_ended(world: FleetWorld) -> bool:
    time.sleep(LOOK_S)
    return all(world.status(job)["state"] == "done" for job in world.in_waves)


def _judge(world: FleetWorld, job: str, kills: int, *, in_time: bool) -> Came:
    measured = [world.status(name) for name in (job, *world.in_waves)]
    executed, count = world.crowd.executed, len(world.names)
    jobs = {job, world.update, *world.in_waves}
    states = Counter(execution["state"] for ordered in measured for execution in ordered["executions"])
    updates = world.updates_done()
    return Came(
        devices=count,
        runs_expected=3 * count,
        runs_executed=sum(times for (_, name), times in executed.items() if name != world.update),
        updates_done=updates,
        executed_twice=sum(times > 1 for times in executed.values()),
        never_executed=sum(not executed[name, job] for name in world.names for job in jobs),
        overlaps=len(world.crowd.overlaps),
        states=dict(states),
        jobs=dict(Counter(ordered["state"] for ordered in measured)),
        records_in_ledger=sum(world.in_ledger().values()),
        kills=kills,
        in_time=in_time,
    )
