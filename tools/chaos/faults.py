"""The faults: what breaks, for how long, and how it is made whole again."""

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tools.chaos.disk import Disk
from tools.chaos.freezing import freeze, freeze_s
from tools.chaos.proxy import Mode, Proxy
from tools.chaos.world import World

DAY_NS = 86_400 * 10**9
INFLUX_FAILURES: tuple[Mode, ...] = ("500", "503", "429", "slow", "lost-answer", "refuse", "stall")

Strike = Callable[[World, random.Random], None]


@dataclass(frozen=True, slots=True)
class Fault:
    """One kind of fault; `strike` returns when it is over.

    `weight` is how often it comes, beside the others.
    """

    name: str
    weight: int
    strike: Strike


def fill_disk(disk: Disk, seconds: float) -> None:
    """Leave a disk full for so long."""
    disk.fill()
    time.sleep(seconds)
    disk.free()


def disturb(proxy: Proxy, mode: Mode, seconds: float) -> None:
    """Let a proxy misbehave for so long."""
    proxy.set(mode)
    time.sleep(seconds)
    proxy.set("pass")


def _step_clock(world: World, draw: random.Random) -> None:
    clock = draw.choice([world.agents_clock, world.collector_clock])
    # Minutes either way, a day ahead, or back to where a board without a clock chip boots.
    clock.step(
        draw.choice([0, draw.randrange(-600, 600) * 10**9, DAY_NS, -time.time_ns() + DAY_NS])
    )


FAULTS = (
    Fault(
        "agents killed", 4, lambda world, draw: draw.choice(world.agents).kill(draw.uniform(0, 2))
    ),
    Fault("broker killed", 2, lambda world, draw: world.broker.kill(draw.uniform(0, 2))),
    Fault(
        "collector killed",
        3,
        lambda world, draw: draw.choice(world.collectors).kill(draw.uniform(0, 2)),
    ),
    Fault("InfluxDB killed", 1, lambda world, draw: world.influx_server.kill(draw.uniform(0, 2))),
    Fault(
        "connections cut",
        4,
        lambda world, draw: draw.choice(
            [world.agents_net, *world.collector_nets, world.influx_net]
        ).cut(),
    ),
    Fault(
        "network stalled",
        2,
        lambda world, draw: disturb(
            draw.choice([world.agents_net, *world.collector_nets]), "stall", draw.uniform(0.5, 4)
        ),
    ),
    Fault(
        "InfluxDB failing",
        3,
        lambda world, draw: disturb(
            world.influx_net, draw.choice(INFLUX_FAILURES), draw.uniform(0.5, 3)
        ),
    ),
    Fault(
        "disk full",
        2,
        lambda world, draw: fill_disk(draw.choice(world.disks()), draw.uniform(0.5, 3)),
    ),
    Fault("clock stepped", 2, _step_clock),
    Fault(
        "agents frozen",
        1,
        lambda world, draw: freeze(draw.choice(world.agents).pid(), freeze_s(draw)),
    ),
    Fault("broker frozen", 1, lambda world, draw: freeze(world.broker.pid(), freeze_s(draw))),
    # Also longer than PostgreSQL waits for a client that stopped in a transaction.
    Fault(
        "collector frozen",
        2,
        lambda world, draw: freeze(draw.choice(world.collectors).pid(), freeze_s(draw)),
    ),
    Fault(
        "InfluxDB frozen", 1, lambda world, draw: freeze(world.influx_server.pid(), freeze_s(draw))
    ),
)


def strike(
    world: World,
    kinds: Sequence[Fault],
    faults: int,
    gap_s: float,
    seed: int,
    say: Callable[[str], None],
) -> Counter[str]:
    """Strike so many times, `gap_s` apart on average, with faults that overlap.

    Returns: how often each kind was struck, once all are whole again.
    """
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
        thread = threads[fault.name] = threading.Thread(
            target=fault.strike,
            args=(world, random.Random(draw.random())),  # noqa: S311
            daemon=True,
        )
        thread.start()
        struck[fault.name] += 1
        if (number + 1) % 25 == 0:
            say(f"{number + 1} of {faults} faults")
    for thread in threads.values():
        thread.join()
    return struck
