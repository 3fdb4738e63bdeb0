"""One small file of the kernel: its text or its number, and an error that tells what is absent from what may not be read."""

import errno
import os
import re
from pathlib import Path

from edgemeter.agent.errors import TransientError, UnavailableError
from edgemeter.agent.power import AbsentError

LONGEST_BYTES = 4096
# What the kernel writes, up to 64 bits; int() takes more for a number.
NUMBER = re.compile(r"-?\d{1,20}", re.ASCII)
# What a driver answers while the part that it asks is off or busy: the next read may work.
PASSING = frozenset({errno.EAGAIN, errno.EBUSY, errno.EIO, errno.ENODATA, errno.ETIMEDOUT, errno.EREMOTEIO, errno.EINTR})
# What a recording holds of a file that `cat` could not show: it is taken for the error that it was.
SHELL_SAID = re.compile(rb"(?:cat|grep|head|tail): .*: (?P<why>[^:\n]+)\s*")
ERRORS = {os.strerror(code).encode(): code for code in errno.errorcode if code not in (errno.ENOENT, errno.ENOTDIR)}


def text(path: Path | str) -> str:
    """Return what the file holds, without white space and NULs around it.

    Raises:
        AbsentError: there is no such file.
        UnavailableError: it may not be read.
        TransientError: the driver gave no value this time.
    """
    try:
        # Text mode raises TypeError where a driver answers EAGAIN.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        try:
            content = os.read(descriptor, LONGEST_BYTES)
        finally:
            os.close(descriptor)
        if (said := SHELL_SAID.fullmatch(content)) and said["why"] in ERRORS:
            raise OSError(ERRORS[said["why"]], said["why"].decode())  # noqa: TRY301 - mapped below like the error that it was
    except (FileNotFoundError, NotADirectoryError) as error:
        message = f"there is no {str(path)!r}"
        raise AbsentError(message) from error
    except PermissionError as error:
        message = f"may not read {str(path)!r}: run as root, or give this user's group the right to read it (`sudo chmod a+r {path}`)"
        raise UnavailableError(message) from error
    except OSError as error:
        message = f"cannot read {str(path)!r}: {error.strerror}"
        raise (TransientError if error.errno in PASSING else UnavailableError)(message) from error
    return content.decode(errors="replace").strip("\0 \t\r\n")


def number(path: Path | str) -> int:
    """Return the whole number that the file holds.

    Raises:
        AbsentError: there is no such file.
        UnavailableError: it may not be read.
        TransientError: it holds no number, or the driver gave no value this time.
    """
    content = text(path)
    if not NUMBER.fullmatch(content):
        message = f"{str(path)!r} holds {content[:40]!r}, not a whole number: read it again, and look into the kernel log"
        raise TransientError(message)
    return int(content)
