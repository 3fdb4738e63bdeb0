"""The registry: the SQLite file shared by every fleet command and the service.

The modules next to it write and read its tables.
"""

from pathlib import Path

from edgemeter.agent.base.sqlite_file import Access, Database, FileFormat

_FORMAT = FileFormat(
    what="fleet registry",
    application_id=0x45464C54,
    version=7,
    schema=Path(__file__).with_name("schema.sql").read_text(encoding="utf-8"),
    elsewhere="run `edgemeter fleet init`, or name the fleet's folder with --folder",
)


class Registry(Database):
    """The registry at `path`, a context manager, usable from any thread.

    Its errors are those of `sqlite_file.mapped`.
    """

    def __init__(self, path: Path, access: Access = "write") -> None:
        super().__init__(path, _FORMAT, access)
