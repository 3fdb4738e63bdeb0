"""A chaos run on one PostgreSQL that several collectors share, and the faults that only it knows."""

import signal
import subprocess
from pathlib import Path

from tests.chaos.database import DATABASE, Database
from tests.chaos.faults import FAULTS, Fault, disturb, fill_disk
from tests.chaos.freezing import freeze, freeze_s
from tests.chaos.judge import Verdict
from tests.chaos.world import Size, World
from tests.fixtures.collecting import EDGEMETER

COLLECTORS = 3


class SharedWorld(World):
    """The world whose ledger is PostgreSQL: what fails besides are its server, its disks and the way to it."""

    database: Database

    def __init__(self, influxd: Path, size: Size) -> None:
        super().__init__(influxd, size, COLLECTORS)

    def verdict(self) -> Verdict:
        """End the collectors and return what came of the run; the ledger is read past the proxy."""
        self.ledger = self.database.server.address(DATABASE)
        return super().verdict()

    def _make_ledger(self) -> str:
        # The server is another user, who has to get to its disks.
        self.folder.chmod(0o755)
        self.database = Database(self.folder / "database", self.ledger_mb)
        self._stack.callback(self.database.stop)
        self.database.start()
        address = self.database.address
        subprocess.run([*EDGEMETER, "collector", "init-ledger", "--ledger", address], check=True, capture_output=True, timeout=120)
        return address


def _of(world: World) -> Database:
    assert isinstance(world, SharedWorld)
    return world.database


SHARED_FAULTS = (
    *FAULTS,
    Fault("COMMIT cut", 6, lambda world, draw: _of(world).proxy.arm("before" if draw.random() < 0.3 else "after")),
    Fault("PostgreSQL killed", 4, lambda world, draw: _of(world).kill(draw.uniform(0, 2))),
    Fault("PostgreSQL frozen", 2, lambda world, draw: freeze(_of(world).pid(), freeze_s(draw))),
    Fault("back-end ended", 3, lambda world, draw: _of(world).strike_backend(signal.SIGTERM, draw.randrange(100))),
    Fault("back-end killed", 2, lambda world, draw: _of(world).strike_backend(signal.SIGKILL, draw.randrange(100))),
    Fault("PostgreSQL cut off", 2, lambda world, _: _of(world).proxy.cut()),
    Fault("PostgreSQL stalled", 1, lambda world, draw: disturb(_of(world).proxy, "stall", draw.uniform(0.5, 6))),
    Fault("PostgreSQL's disk full", 2, lambda world, draw: fill_disk(_of(world).data_disk, draw.uniform(1, 4))),
    Fault("WAL disk full", 2, lambda world, draw: fill_disk(_of(world).wal_disk, draw.uniform(1, 4))),
)
