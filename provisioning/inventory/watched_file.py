"""fleet.toml as a service reads it: again only when it was written, since a fleet of thousands takes a second to read."""

from edgemeter.provisioning.fleet_folder import FleetFolder
from edgemeter.provisioning.inventory import known
from edgemeter.provisioning.inventory.fleet_file import FleetFile


class WatchedFile:
    """The fleet.toml of a folder."""

    def __init__(self, folder: FleetFolder) -> None:
        self._folder = folder
        self._seen: tuple[int, int] | None = None
        self._said: FleetFile | None = None

    def read(self) -> FleetFile | None:
        """Return what it says, None where there is none.

        Raises:
            ConfigError: it has a wrong or unknown key; said each time that it was written so, what it said before holds.
        """
        try:
            file = self._folder.fleet_file.stat()
            seen = (file.st_mtime_ns, file.st_size)
        except OSError:
            seen = None
        if seen != self._seen:
            self._seen = seen
            self._said = known.written(self._folder)
        return self._said
