"""Writes a bundle for each run of a session as it ends, while the session goes on."""

from pathlib import Path

from edgemeter.agent import records
from edgemeter.agent.bundle import write
from edgemeter.agent.bundle.signature import Signer
from edgemeter.agent.engine import job, session
from edgemeter.agent.errors import EdgemeterError


class Recorder:
    """Listens to a session before `tell` does; what cannot be written is kept in `errors`, for a run outweighs its bundle."""

    def __init__(self, folder: Path, tell: session.Tell, suite: bytes | None = None, signer: Signer | None = None) -> None:
        write.check_folder(folder)
        self.written: list[Path] = []
        self.errors: list[EdgemeterError] = []
        self._folder = folder
        self._tell = tell
        self._suite = suite
        self._signer = signer
        self._begun: session.RunBegins | None = None

    def __call__(self, event: session.RunBegins | job.Event | session.RunEnds) -> None:
        """Take note of one event of a session."""
        if isinstance(event, session.RunBegins):
            self._begun = event
        elif isinstance(event, session.RunEnds) and isinstance(event.outcome, records.RunRecord):
            self._write(event.outcome)
        self._tell(event)

    def _write(self, record: records.RunRecord) -> None:
        if self._begun is None:
            return
        try:
            self.written.append(write.write(self._folder, record, self._begun.case, self._suite, self._signer))
        except EdgemeterError as error:
            self.errors.append(error)
