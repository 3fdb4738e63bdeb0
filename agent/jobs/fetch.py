"""Downloads one content over HTTPS and verifies its hash, in a separate process.

It is `python -m edgemeter.agent.jobs.fetch TASK`.

An interrupted download is continued; a file gets its final name only when its hash is right.
"""

import fcntl
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec

from edgemeter.agent.base import durable_file
from edgemeter.agent.base.download import download
from edgemeter.agent.base.errors import EdgemeterError, TransientError, UnavailableError
from edgemeter.agent.base.tls import TlsFiles, tls_context
from edgemeter.agent.jobs.content import HERE, REFUSED, FetchTask

# A part damaged by a power cut is downloaded again from its beginning.
TRIES = 2
FAILED = 1


def fetch(task: FetchTask, download: Callable[..., None] = download) -> None:
    """Download the content to its final path.

    Raises:
        TransientError: the connection broke, or the file cannot be written now, or another process
            writes it; the part stays.
        UnavailableError: the server refuses, or has another file, or the hash is wrong twice.
        ConfigError: the address or its certificates cannot be used.
    """
    part, content = Path(task.part), task.content
    files = TlsFiles(*(Path(name) if name else None for name in task.tls))
    context = tls_context(files) if task.url.startswith("https://") else None
    try:
        with part.open("ab") as locked:
            # The child of a killed agent may still be running.
            fcntl.flock(locked, fcntl.LOCK_EX | fcntl.LOCK_NB)
            for _ in range(TRIES):
                if part.stat().st_size < content.size_bytes:
                    download(
                        task.url, part, content.size_bytes, content.size_bytes, context=context
                    )
                if durable_file.sha256_of(part) == content.sha256:
                    durable_file.sync(part)
                    part.replace(task.final)
                    durable_file.sync(part.parent)
                    return
                part.write_bytes(b"")
    except BlockingIOError as error:
        raise TransientError("another process fetches it") from error
    except OSError as error:
        raise TransientError(
            f"cannot keep the content {content.name!r} at {task.final!r}: {error.strerror}"
        ) from error
    raise UnavailableError(
        f"the server's file does not have the hash {content.sha256[:12]}, after {TRIES} downloads"
    )


def outcome(task: FetchTask, download: Callable[..., None] = download) -> tuple[int, str]:
    """Download; return the exit status and the reason for a failure."""
    try:
        fetch(task, download)
    except EdgemeterError as error:
        return (
            FAILED if isinstance(error, TransientError) else REFUSED,
            f"cannot fetch {task.content.name!r}: {error}",
        )
    return HERE, ""


if __name__ == "__main__":
    status, reason_text = outcome(msgspec.json.decode(sys.argv[1], type=FetchTask))
    sys.stdout.write(reason_text)
    sys.exit(status)
