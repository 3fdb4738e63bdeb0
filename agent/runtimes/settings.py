"""Checks what was asked of a runtime before any library is imported."""

from collections.abc import Collection

from edgemeter.agent.errors import ConfigError
from edgemeter.agent.runtimes import Options


def check(runtime: str, options: Options, backends: Collection[str] | None = None, extra: Collection[str] = ()) -> None:
    """Return when `options` can be meant; `backends` None leaves the backend to the runtime; `extra` are the settings it knows.

    Raises:
        ConfigError: fewer than one thread, an unknown backend or an unknown setting.
    """
    if options.threads < 1:
        message = f"runtime {runtime!r} cannot run on {options.threads} threads: give 1 or more"
        raise ConfigError(message)
    if backends is not None and options.backend is not None and options.backend not in backends:
        message = f"runtime {runtime!r} has no backend {options.backend!r}: choose one of {', '.join(backends)}, or none"
        raise ConfigError(message)
    unknown = sorted(set(options.extra) - set(extra))
    if unknown:
        known = f"it knows {', '.join(extra)}" if extra else "it knows none"
        message = f"runtime {runtime!r} has no setting {unknown[0]!r}: {known}"
        raise ConfigError(message)
