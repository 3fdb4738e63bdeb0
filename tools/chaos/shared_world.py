"""A chaos run on one PostgreSQL that several collectors share, with a synchronous standby.

It has the faults that only such a run knows.
"""

import random
import signal
import subprocess
from pathlib import Path

from tests.fixtures.collecting import EDGEMETER
from tools.chaos.database import Node, Pair
from tools.chaos.faults import FAULTS, Fault, disturb, fill_disk
from tools.chaos.freezing import freeze, freeze_s
from tools.chaos.judge import Verdict
from tools.chaos.world import Size, World

COLLECTORS = 3


class SharedWorld(World):
    """The world whose ledger is PostgreSQL.

    Its servers, their disks and the way to them fail besides.
    """

    pair: Pair

    def __init__(self, influxd: Path, size: Size) -> None:
        super().__init__(influxd, size, COLLECTORS)

    def settle(self, stalled_s: float) -> bool:
        """Wait until a standby follows, and everything is delivered and drained.

        Returns: False when nothing moves for `stalled_s`.
        """
        self.pair.settle()
        return super().settle(stalled_s)

    def verdict(self) -> Verdict:
        """End the collectors and return the verdict on the run.

        The ledger is read past the proxies.
        """
        self.ledgers = [self.pair.primary.server.address("edgemeter")]
        return super().verdict()

    def _make_ledger(self) -> str:
        # The server is another user, who has to get to its disks.
        self.folder.chmod(0o755)
        self.pair = Pair(self.folder, self.ledger_mb)
        self._stack.callback(self.pair.stop)
        self.pair.start()
        self.pair.settle()
        subprocess.run(
            [*EDGEMETER, "collector", "init-ledger", "--ledger", self.pair.address],
            check=True,
            capture_output=True,
            timeout=120,
        )
        return self.pair.address


def _of(world: World) -> Pair:
    assert isinstance(world, SharedWorld)
    return world.pair


def _either(world: World, draw: random.Random) -> Node:
    # The standby's failures matter, too: nothing commits without it.
    return draw.choices(_of(world).nodes, [1, 1])[0]


SHARED_FAULTS = (
    *FAULTS,
    Fault(
        "COMMIT cut",
        6,
        lambda world, draw: _of(world).primary.proxy.arm(
            "before" if draw.random() < 0.3 else "after"
        ),
    ),
    Fault(
        "PostgreSQL killed", 4, lambda world, draw: _either(world, draw).kill(draw.uniform(0, 2))
    ),
    Fault(
        "PostgreSQL frozen",
        2,
        lambda world, draw: freeze(_either(world, draw).pid(), freeze_s(draw)),
    ),
    Fault(
        "back-end ended",
        3,
        lambda world, draw: _of(world).primary.strike_backend(signal.SIGTERM, draw.randrange(100)),
    ),
    Fault(
        "back-end killed",
        2,
        lambda world, draw: _of(world).primary.strike_backend(signal.SIGKILL, draw.randrange(100)),
    ),
    Fault("PostgreSQL cut off", 2, lambda world, draw: _either(world, draw).proxy.cut()),
    Fault(
        "PostgreSQL stalled",
        1,
        lambda world, draw: disturb(_of(world).primary.proxy, "stall", draw.uniform(0.5, 6)),
    ),
    Fault(
        "PostgreSQL's disk full",
        2,
        lambda world, draw: fill_disk(_of(world).primary.data_disk, draw.uniform(1, 4)),
    ),
    Fault(
        "WAL disk full",
        2,
        lambda world, draw: fill_disk(_either(world, draw).wal_disk, draw.uniform(1, 4)),
    ),
    Fault("failover", 1, lambda world, _: _of(world).failover()),
    Fault(
        "primary hangs, failover",
        1,
        lambda world, draw: _of(world).hang(freeze_s(draw), draw.uniform(0, 3)),
    ),
)
