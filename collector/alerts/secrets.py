"""Secrets of channels: from a file or from the environment, never from the rules themselves but for addresses that are none."""

import os
from pathlib import Path

from edgemeter.agent.errors import ConfigError


def secret(what: str, channel: str, file: str | None, variable: str | None) -> str | None:
    """Return the secret in `file`, or in the environment's `variable`; None where neither is named.

    Raises:
        ConfigError: it cannot be read, or is empty.
    """
    if file is not None:
        try:
            value = Path(file).expanduser().read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            message = f"channel {channel!r}: cannot read the {what} from {file!r}: {error}"
            raise ConfigError(message) from error
    elif variable is not None:
        value = os.environ.get(variable, "").strip()
    else:
        return None
    if not value:
        place = f"the file {file!r}" if file is not None else f"the variable {variable}"
        message = f"channel {channel!r}: {place} holds no {what}: write it there"
        raise ConfigError(message)
    return value
