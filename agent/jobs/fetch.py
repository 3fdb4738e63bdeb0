"""Brings one content to its end, in a process of its own: over HTTPS where the configuration names a server, then checks its hash.

`python -m edgemeter.agent.jobs.fetch` reads a Task from its standard input. What MQTT has brought so far is gone on with. Its exit status
tells the daemon how to go on; a file has its final name only when its hash is right.
"""

import logging
import sys
from pathlib import Path

import msgspec

from edgemeter.agent.base import durable_file
from edgemeter.agent.base.download import download
from edgemeter.agent.base.errors import EdgemeterError, TransientError, UnavailableError
from edgemeter.agent.base.tls import TlsFiles, tls_context
from edgemeter.agent.jobs.content import FAILED, HERE, INCOMPLETE, WRONG_HASH, FetchTask

logger = logging.getLogger(__name__)


def bring(task: FetchTask) -> int:
    """Return the exit status: HERE, WRONG_HASH (what there was is removed), or INCOMPLETE (the rest has to come another way).

    Raises:
        EdgemeterError: the file cannot be written, or the address or its certificates cannot be used.
    """
    part = Path(task.part)
    try:
        if task.url and part.stat().st_size < task.content.size_bytes:
            where = f"{task.url.rstrip('/')}/{task.content.sha256}"
            files = TlsFiles(*(Path(name) if name else None for name in task.tls))
            context = tls_context(files) if where.startswith("https://") else None
            try:
                download(where, part, task.content.size_bytes, task.content.size_bytes, context=context)
            except (TransientError, UnavailableError) as error:
                logger.warning("%s: the rest comes over MQTT", error)
        if part.stat().st_size < task.content.size_bytes:
            return INCOMPLETE
        if part.stat().st_size > task.content.size_bytes or durable_file.sha256_of(part) != task.content.sha256:
            part.unlink()
            return WRONG_HASH
        durable_file.sync(part)
        part.replace(task.final)
        durable_file.sync(part.parent)
    except OSError as error:
        raise UnavailableError(f"cannot keep the content {task.content.name!r} at {task.final!r}: {error.strerror}") from error
    return HERE


def main() -> int:
    """Do the task on standard input and return the exit status."""
    logging.basicConfig(level=logging.INFO, format="edgemeter: %(message)s", stream=sys.stderr)
    try:
        return bring(msgspec.json.decode(sys.stdin.buffer.read(), type=FetchTask))
    except EdgemeterError as error:
        logger.error("%s", error)  # noqa: TRY400 - no traceback for what is known
        return FAILED


if __name__ == "__main__":
    sys.exit(main())
