"""How many connections the fleet's processes may hold: the system's limit of open files, 1,024 unless somebody raises it."""

import re
import resource
from pathlib import Path

from edgemeter.provisioning.identity.enforcement import broker_process
from edgemeter.provisioning.inventory.fleet_file import ServerEntry
from edgemeter.provisioning.inventory.fleet_folder import FleetFolder

# 1,100 silent connections of strangers exhaust the usual limit.
FEWEST = 4096
_REMEDY = "start it by its systemd unit (sudo systemctl start edgemeter-fleet.target), or after `ulimit -n 65536`"
_LIMIT = re.compile(r"^Max open files\s+(\d+)", re.MULTILINE)


def raise_limit() -> None:
    """Let this process open as many files as the system allows it."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def low_limits(folder: FleetFolder, server: ServerEntry, proc: Path = Path("/proc")) -> list[str]:
    """Return which of service and broker may open too few files, with the remedy; a broker elsewhere is not looked at."""
    issues = []
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= limit < FEWEST:
        issues.append(f"the service may open {limit:,} files only: {_REMEDY}")
    broker = broker_process(folder, server, proc)
    connections = _open_files(proc / str(broker) / "limits") if broker is not None else None
    if connections is not None and connections < FEWEST:
        issues.append(f"the broker may hold {connections:,} connections only, so a stranger can take them all: {_REMEDY}")
    return issues


def _open_files(limits: Path) -> int | None:
    try:
        match = _LIMIT.search(limits.read_text())
    except OSError:
        return None
    return int(match[1]) if match else None
