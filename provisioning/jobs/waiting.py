"""Why what is queued has not been sent yet, as far as the registry and fleet.toml tell; who is online only the service knows."""

from edgemeter.provisioning.fleet_folder import FleetFolder
from edgemeter.provisioning.jobs import rulebook
from edgemeter.provisioning.jobs.executions import Execution
from edgemeter.provisioning.jobs.queue import Queue
from edgemeter.provisioning.registry.registry import Registry

FOR_ITS_DEVICE = "waits for its device"


class Waiting:
    """Reads the rules and what is in flight once; `why` then says it of any number of executions."""

    def __init__(self, folder: FleetFolder, registry: Registry) -> None:
        self._rules = rulebook.read(folder, registry)
        self._queue = Queue(registry)
        self._queue.load(self._rules)

    def why(self, execution: Execution, now_ns: int) -> str | None:
        """Return why it waits, None for one that does not."""
        if execution.state == "held":
            return "its group has not begun"
        if execution.state != "queued":
            return None
        said = self._queue.busy.why_not(self._queue.asked(execution), self._rules, now_ns)
        return said or FOR_ITS_DEVICE
