"""The faults: what breaks, for how long, and how it is made whole again."""

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tests.chaos.world import World

DAY_NS = 86_400 * 10**9

Strike = Callable[[World, random.Random], None]


@dataclass(frozen=True, slots=True)
class Fault:
    """One kind of fault; `strike` returns when it is over. `weight` is how often it comes, beside the others."""

    name: str
    weight: int
    strike: Strike


def _kill_agents(world: World, draw: random.Random) -> None:
    draw.choice(world.agents).kill(draw.uniform(0, 2))


def _kill_broker(world: World, draw: random.Random) -> None:
    world.broker.kill(draw.uniform(0, 2))


def _kill_collector(world: World, draw: random.Random) -> None:
    draw.choice(world.collectors).kill(draw.uniform(0, 2))


def _kill_influx(world: World, draw: random.Random) -> None:
    world.influx_server.kill(draw.uniform(0, 2))


def _cut(world: World, draw: random.Random) -> None:
    draw.choice([world.agents_net, *world.collector_nets, world.influx_net]).cut()


def _stall(world: World, draw: random.Random) -> None:
    proxy = draw.choice([world.agents_net, *world.collector_nets])
    proxy.set("stall")
    time.sleep(draw.uniform(0.5, 4))
    proxy.set("pass")


def _influx_answers(world: World, draw: random.Random) -> None:
    world.influx_net.set(draw.choice(["500", "503", "429", "slow", "lost-answer", "refuse", "stall"]))
    time.sleep(draw.uniform(0.5, 3))
    world.influx_net.set("pass")


def _fill_disk(world: World, draw: random.Random) -> None:
    disk = draw.choice(world.disks())
    disk.fill()
    time.sleep(draw.uniform(0.5, 3))
    disk.free()


def _step_clock(world: World, draw: random.Random) -> None:
    clock = draw.choice([world.agents_clock, world.collector_clock])
    # Minutes either way, a day ahead, or back to where a board without a clock chip boots.
    clock.step(draw.choice([0, draw.randrange(-600, 600) * 10**9, DAY_NS, -time.time_ns() + DAY_NS]))


FAULTS = (
    Fault("agents killed", 4, _kill_agents),
    Fault("broker killed", 2, _kill_broker),
    Fault("collector killed", 3, _kill_collector),
    Fault("InfluxDB killed", 1, _kill_influx),
    Fault("connections cut", 4, _cut),
    Fault("network stalled", 2, _stall),
    Fault("InfluxDB failing", 3, _influx_answers),
    Fault("disk full", 2, _fill_disk),
    Fault("clock stepped", 2, _step_clock),
)


def strike(world: World, kinds: Sequence[Fault], faults: int, gap_s: float, seed: int, say: Callable[[str], None]) -> Counter[str]:
    """Strike so many times, `gap_s` apart on average, faults overlapping; return how often each kind was struck, all whole again."""
    draw = random.Random(seed)  # noqa: S311 - the same faults for the same seed
    kinds = [fault for fault in kinds if world.disks() or not fault.name.endswith("disk full")]
    struck: Counter[str] = Counter()
    threads: dict[str, threading.Thread] = {}
    for number in range(faults):
        time.sleep(draw.expovariate(1 / gap_s))
        (fault,) = draw.choices(kinds, [kind.weight for kind in kinds])
        # One of a kind at a time: the end of one would heal the other.
        if fault.name in threads:
            threads[fault.name].join()
        thread = threads[fault.name] = threading.Thread(target=fault.strike, args=(world, random.Random(draw.random())), daemon=True)  # noqa: S311
        thread.start()
        struck[fault.name] += 1
        if (number + 1) % 25 == 0:
            say(f"{number + 1} of {faults} faults")
    for thread in threads.values():
        thread.join()
    return struck
