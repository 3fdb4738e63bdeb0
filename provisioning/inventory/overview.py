"""Every device of a fleet on one line: what people said of it, what it says of itself, and how it stands; the most urgent first."""

from dataclasses import dataclass, field

from edgemeter.agent.health.contract import Health
from edgemeter.provisioning.fleet_folder import FleetFolder
from edgemeter.provisioning.health import presence, standing
from edgemeter.provisioning.health.presence import Presence
from edgemeter.provisioning.health.standing import Standing
from edgemeter.provisioning.inventory import concerns, known
from edgemeter.provisioning.inventory.concerns import Concern
from edgemeter.provisioning.jobs import executions
from edgemeter.provisioning.jobs.executions import Execution
from edgemeter.provisioning.registry.devices import Device
from edgemeter.provisioning.registry.registry import Registry
from edgemeter.provisioning.rescue import attempts
from edgemeter.provisioning.rescue.attempts import Rescue


@dataclass(frozen=True, slots=True)
class Line:
    """One device. `heard` is what it last said, None where it never did; `job` what it is busy with; `concerns` the worst first."""

    device: Device
    heard: Presence | None
    standing: Standing | None
    rescue: Rescue | None
    job: Execution | None
    concerns: tuple[Concern, ...] = field(default=())

    @property
    def health(self) -> Health | None:
        """What it said of its own state, None where it never did."""
        return self.heard.health if self.heard else None

    @property
    def presence(self) -> str | None:
        """Whether it is there, None where it was never heard; one that was revoked is that, whatever it said last."""
        return "revoked" if self.device.standing == "revoked" else self.heard.state if self.heard else None

    @property
    def presence_since_ns(self) -> int | None:
        """Since when that is so (UTC, by the server's clock), None where it was never heard."""
        return self.device.changed_ns if self.device.standing == "revoked" else self.heard.since_ns if self.heard else None

    @property
    def board(self) -> str | None:
        """What people call its board, else what it says itself."""
        return self.device.board or (self.heard.board if self.heard else None)

    @property
    def agent(self) -> str | None:
        """The version of its agent, None where it was never heard."""
        return self.heard.agent if self.heard else None

    @property
    def condition(self) -> str:
        """Return how it stands in one or two words."""
        if self.rescue is not None and self.rescue.needs_hand:
            return "needs a hand"
        return self.standing.state if self.standing else "not measured"


def read(folder: FleetFolder, registry: Registry, now_ns: int) -> list[Line]:
    """Return every device of the fleet, the most urgent first, then by fleet and name; a device that nobody named is there too.

    Raises:
        ConfigError: fleet.toml has a wrong or unknown key.
    """
    heard, standings, rescues = presence.read(registry), standing.read(registry), attempts.read(registry)
    jobs = {one.device: one for one in executions.unfinished(registry) if one.state in executions.IN_FLIGHT}
    named = {one.device: one for one in known.read(folder, registry)}
    for name, one in heard.items():
        if name not in named:
            # It speaks, so the broker let it in: over another way than this fleet's enrolment.
            named[name] = Device(name, one.fleet, None, None, (), "expected", None, None, None, 0)
    lines = []
    for name, device in named.items():
        line = Line(device, heard.get(name), standings.get(name), rescues.get(name), jobs.get(name))
        found = concerns.of(device, line.heard, line.standing, line.rescue, now_ns)
        lines.append(Line(device, line.heard, line.standing, line.rescue, line.job, found))
    return sorted(lines, key=lambda line: (concerns.rank(line.concerns), line.device.fleet, line.device.device))
