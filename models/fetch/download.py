"""One address into a part file: goes on where it stopped, and never takes a piece of one file for a piece of another."""

import http.client
import logging
import os
import re
import shutil
from dataclasses import dataclass
from http import HTTPStatus

from edgemeter.agent.errors import TransientError, UnavailableError
from edgemeter.models.fetch.part import Origin, Part
from edgemeter.models.fetch.transport import Transport, lost, shown
from edgemeter.models.progress import Tell

logger = logging.getLogger(__name__)

TRIES = 5
_CHUNK_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class Want:
    """What is to arrive: its size where that is known, and how much is taken at most where it is not."""

    size_bytes: int | None
    limit_bytes: int


def download(address: str, part: Part, want: Want, transport: Transport, tell: Tell) -> None:
    """Bring `part` to the whole of what lies at `address`.

    A connection that breaks is taken up again, `TRIES` times without any byte gained. Resuming sends Range with If-Range; a server that
    ignores it, whose file has changed, or that gave no validator, sends everything anew.

    Raises:
        TransientError: it broke again and again, or the disk is full; what has arrived is kept.
        UnavailableError: the server refuses, or has another file than we want.
    """
    failed, most = 0, part.size_bytes
    while True:
        try:
            _once(address, part, want, transport, tell)
        except _BrokenError as error:
            failed = 1 if part.size_bytes > most else failed + 1
            most = max(most, part.size_bytes)
            if failed >= TRIES:
                message = f"{error}, {TRIES} times; {part.size_bytes} bytes are kept, fetch again to go on"
                raise TransientError(message) from error
            logger.info("%s; trying again", error)
            transport.pause(0.5 * 2 ** (failed - 1))
        else:
            return


class _BrokenError(Exception):
    """The connection broke; what has arrived can be continued."""


def _once(address: str, part: Part, want: Want, transport: Transport, tell: Tell) -> None:
    """Ask once for what is missing, and append it."""
    origin = part.origin()
    have = part.size_bytes if origin and origin.address == address and origin.validator else 0
    if origin and have and have == origin.size_bytes:
        return
    headers = {"Range": f"bytes={have}-", "If-Range": origin.validator or ""} if origin and have else {}
    try:
        answer = transport.open(address, headers)
    except TransientError as error:
        raise _BrokenError(str(error)) from error
    with answer:
        if answer.status == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            part.drop()
            message = f"{shown(address)}: the file there is shorter than what has arrived"
            raise _BrokenError(message)
        total = _begin(address, answer, part, have, want)
        _append(address, answer, part, total, want, tell)


def _begin(address: str, answer: http.client.HTTPResponse, part: Part, have: int, want: Want) -> int | None:
    """Return the size of the whole file, None where the server does not say; `part` holds what stands before this body."""
    encoding = answer.headers.get("Content-Encoding", "identity").lower()
    if encoding != "identity":
        message = f"{shown(address)}: the server sends it as {encoding}, unasked"
        raise UnavailableError(message)
    total: int | None
    if answer.status == HTTPStatus.PARTIAL_CONTENT:
        match = re.fullmatch(r"bytes (\d+)-\d+/(\d+)", answer.headers.get("Content-Range", ""))
        origin = part.origin()
        if not match or int(match[1]) != have or (origin and origin.size_bytes not in (None, int(match[2]))):
            part.drop()
            message = f"{shown(address)}: the server sends another range than was asked for"
            raise _BrokenError(message)
        total = int(match[2])
    else:
        length = answer.headers.get("Content-Length", "")
        total = int(length) if length.isdecimal() else None
    _check_size(address, total, want)
    _check_room(part, total, have if answer.status == HTTPStatus.PARTIAL_CONTENT else 0)
    if answer.status != HTTPStatus.PARTIAL_CONTENT:
        part.begin(Origin(address=address, validator=_validator(answer), size_bytes=total))
    return total


def _append(address: str, answer: http.client.HTTPResponse, part: Part, total: int | None, want: Want, tell: Tell) -> None:
    """Write the body to the end of the part, and put it on disk."""
    done = part.size_bytes
    try:
        with part.path.open("ab") as file:
            while chunk := _chunk(address, answer):
                done += len(chunk)
                if done > (want.limit_bytes if total is None else total):
                    part.drop()
                    message = f"{shown(address)}: more than the {want.limit_bytes if total is None else total} bytes it may have"
                    raise UnavailableError(message)
                file.write(chunk)
                tell(part.target.name, done, total or 0)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise part.unwritable(error) from error
    if total is not None and done < total:
        message = f"{shown(address)}: the connection was cut after {done} of {total} bytes"
        raise _BrokenError(message)


def _chunk(address: str, answer: http.client.HTTPResponse) -> bytes:
    try:
        return answer.read1(_CHUNK_BYTES)
    except (OSError, http.client.HTTPException) as error:
        raise _BrokenError(str(lost(address, error))) from error


def _check_size(address: str, total: int | None, want: Want) -> None:
    if total is not None and want.size_bytes is not None and total != want.size_bytes:
        message = f"{shown(address)}: {total} bytes, the catalogue says {want.size_bytes}: it is another file"
        raise UnavailableError(message)
    if total is not None and total > want.limit_bytes:
        message = f"{shown(address)}: {total} bytes are more than the cache may hold, {want.limit_bytes}: raise --limit-mb"
        raise UnavailableError(message)


def _check_room(part: Part, total: int | None, have: int) -> None:
    """Refuse at once what the disk cannot hold, rather than after an hour."""
    free = shutil.disk_usage(part.target.parent).free
    # What is there already is either kept or freed before the body is written.
    missing = 0 if total is None else total - (have or part.size_bytes)
    if missing > free:
        message = (
            f"no space left in {str(part.target.parent)!r} for {part.target.name}: {missing} bytes are to come, {free} are free; make room "
            "(`edgemeter models cache`) or name another folder with --cache"
        )
        raise TransientError(message)


def _validator(answer: http.client.HTTPResponse) -> str | None:
    """Return what If-Range takes: a strong ETag, else the date of the last change."""
    tag = answer.headers.get("ETag")
    return tag if tag and not tag.startswith("W/") else answer.headers.get("Last-Modified")
