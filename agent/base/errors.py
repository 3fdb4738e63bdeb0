"""Errors, sorted by what the caller does next.

    EdgemeterError
    |-- ConfigError        the file, option or model is wrong: fix it
    |                      (exit status USAGE, the others FAILED)
    |-- UnavailableError   it is absent: install it, plug it in, or go on without it
    |-- TransientError     it may work later: retry
    `-- MeasurementError   the measurement failed: publish no number
        `-- AnswerError    a server did not answer one query: it counts as failed, and the run
                           goes on

Every message says what was tried, on what, and what to do.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

DONE, FAILED, USAGE, INTERRUPTED, TERMINATED = 0, 1, 2, 130, 143
# The exit statuses, which the reference page shows. `edgemeter energy` ends with the status of the
# measured command.
EXIT_STATUSES: Mapping[int, str] = {
    DONE: "Success.",
    FAILED: (
        "Failure. Something is absent (a runtime, sensor, extra or broker), or a check failed (a "
        "gate, verdict, signature or finding)."
    ),
    USAGE: "Wrong option, file, model or setting. Nothing was measured or changed.",
    INTERRUPTED: (
        "Interrupted by Ctrl-C. Finished runs are kept. A second Ctrl-C ends at once, without "
        "the rest of the output."
    ),
    TERMINATED: "Ended by a service manager or `kill`. Finished runs are kept.",
}

# Numbers in brackets, as libraries print an array; longer lists are data, not shapes.
_NUMBERS = re.compile(r"\[[-+\d.,\s\[\]eEnaif]*[\].\d]")
_MOST_NUMBERS = 24


class EdgemeterError(Exception):
    """An error that ends a command with one line instead of a traceback."""

    exit_status = FAILED


class ConfigError(EdgemeterError):
    """The user's input cannot be used: a file, an option or a model has to be fixed."""

    exit_status = USAGE


class UnavailableError(EdgemeterError):
    """Something optional is absent: a runtime, a sensor, a broker, a library."""


class TransientError(EdgemeterError):
    """The same call may succeed later."""


class MeasurementError(EdgemeterError):
    """The measurement failed; there is no number to publish."""


class AnswerError(MeasurementError):
    """One query was not answered: it counts as failed, and the run goes on.

    `kind` names the failure in a few words (`http 429`, `broke off`, `timeout`); `retry_after_s` is
    how long a server asks to wait. `is_busy`: the server has no capacity now, or is gone; an
    immediate retry would be refused again.
    """

    def __init__(
        self, message: str, *, kind: str, retry_after_s: float | None = None, is_busy: bool = False
    ) -> None:
        super().__init__(message)
        self.kind, self.retry_after_s, self.is_busy = kind, retry_after_s, is_busy


@contextmanager
def os_error_as(kind: type[EdgemeterError], task: str, remedy: str = "") -> Iterator[None]:
    """Raise an OSError in the block as an error of `kind`.

    Its text is the task, the system's reason, and the remedy.
    """
    try:
        yield
    except OSError as error:
        reason = error.strerror or one_line(error)
        raise kind(f"{task} ({reason}): {remedy}" if remedy else f"{task}: {reason}") from error


@contextmanager
def utf8_text(*texts: str) -> Iterator[None]:
    """Raise ConfigError if one of the texts, or one that the block encodes, is not UTF-8.

    An example is a file name of another encoding.
    """
    try:
        for text in texts:
            text.encode()
        yield
    except UnicodeEncodeError as error:
        if error.encoding != "utf-8":
            raise
        raise ConfigError(
            f"{error.object!r} is not UTF-8, as names in records are: rename the file "
            "or folder with `mv`"
        ) from error


def one_line(words: object) -> str:
    """Return an error's text on one line, to end a message.

    It is without the numbers of an array, and shortened in the middle.
    """
    text = _NUMBERS.sub(_without_array, " ".join(str(words).split())) or type(words).__name__
    return text if len(text) <= 300 else f"{text[:200]} ... {text[-95:]}"


def _without_array(match: re.Match[str]) -> str:
    return match[0] if len(re.findall(r"\d[\d.eE+-]*", match[0])) <= _MOST_NUMBERS else "[...]"
