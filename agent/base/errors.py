"""Errors, sorted by what the caller does next.

    EdgemeterError
    |-- ConfigError        the file, option or model is wrong: fix it           (exit status 2)
    |-- UnavailableError   it is not here: install it, plug it in, or go on without it
    |-- TransientError     it may work later: retry
    `-- MeasurementError   the measurement failed: publish no number

Every message says what was tried, on what, and what to do.
"""


class EdgemeterError(Exception):
    """Anything that ends a command as one line instead of a traceback."""

    exit_status = 1


class ConfigError(EdgemeterError):
    """The user's input cannot be used: a file, an option or a model has to be fixed."""

    exit_status = 2


class UnavailableError(EdgemeterError):
    """Something optional is absent: a runtime, a sensor, a broker, a library."""


class TransientError(EdgemeterError):
    """The same call may succeed later."""


class MeasurementError(EdgemeterError):
    """The measurement did not hold; there is no number to publish."""


def one_line(words: object) -> str:
    """Return an error's words on one line, shortened, fit for the end of a message."""
    text = " ".join(str(words).split()) or type(words).__name__
    return text if len(text) <= 300 else f"{text[:297]}..."
