"""Brings one content to its end, in a process of its own: over HTTPS where the configuration names a server, then checks its hash.

`python -m edgemeter.agent.jobs.fetch` reads a Task from its standard input. What MQTT has brought so far is gone on with. Its exit status
tells the daemon how to go on; a file has its final name only when its hash is right.
"""

import http.client
import logging
import sys
from pathlib import Path

import msgspec

from edgemeter.agent.base import durable_file
from edgemeter.agent.base.errors import ConfigError, EdgemeterError, UnavailableError
from edgemeter.agent.base.http_client import FAILURES, open_url
from edgemeter.agent.base.tls import TlsFiles, tls_context
from edgemeter.agent.jobs.content import FAILED, HERE, INCOMPLETE, WRONG_HASH, FetchTask

logger = logging.getLogger(__name__)

TIMEOUT_S = 30.0
_CHUNK_BYTES = 1 << 20


def bring(task: FetchTask) -> int:
    """Return the exit status: HERE, WRONG_HASH (what there was is removed), or INCOMPLETE (the rest has to come another way).

    Raises:
        EdgemeterError: the file cannot be written.
    """
    part = Path(task.part)
    try:
        if task.url and part.stat().st_size < task.content.size_bytes:
            try:
                _download(task, part, task.url)
            except UnavailableError as error:
                logger.warning("%s", error)
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


def _download(task: FetchTask, part: Path, url: str) -> None:
    if not url.startswith(("https://", "http://")):
        raise ConfigError(f"content_url {url!r} is not an https:// or http:// address: correct the configuration")
    where = f"{url.rstrip('/')}/{task.content.sha256}"
    begin = part.stat().st_size
    ca, certificate, key = (Path(name) if name else None for name in task.tls)
    context = tls_context(TlsFiles(ca, certificate, key)) if url.startswith("https://") else None
    headers = {"Range": f"bytes={begin}-"} if begin else {}
    try:
        with open_url(where, _is_no_less_secure, TIMEOUT_S, headers=headers, context=context) as answer, part.open("r+b") as file:
            if answer.status not in (http.client.OK, http.client.PARTIAL_CONTENT):
                raise UnavailableError(f"cannot fetch {where} (it answers {answer.status}): the rest comes over MQTT")
            # A server without ranges sends all of it.
            file.seek(begin if answer.status == http.client.PARTIAL_CONTENT else 0)
            file.truncate()
            left_bytes = task.content.size_bytes - file.tell()
            while left_bytes > 0 and (chunk := answer.read(min(_CHUNK_BYTES, left_bytes))):
                file.write(chunk)
                left_bytes -= len(chunk)
    except (*FAILURES, ValueError) as error:
        raise UnavailableError(f"cannot fetch {where} ({error}): the rest comes over MQTT") from error


def _is_no_less_secure(_: int, before: str, after: str) -> bool:
    return after.startswith("https://") or not before.startswith("https://")


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
