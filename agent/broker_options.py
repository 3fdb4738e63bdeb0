"""The options of every command that talks to a broker; each is a key of the configuration with dashes."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

_Command = TypeVar("_Command", bound=Callable[..., Any])
_FILES = {
    "user": "File with the user name at the broker.",
    "password": "File with the password at the broker.",
    "ca": "Whom to trust with mqtts://, PEM. Default: the system's authorities.",
    "certificate": "Our certificate, for a broker that asks for one (mTLS), PEM.",
    "key": "The key of our certificate, PEM.",
}


def broker_files(command: _Command) -> _Command:
    """Add `--broker-user-file`, `--broker-password-file`, `--broker-ca-file`, `--broker-certificate-file` and `--broker-key-file`."""
    for name, text in reversed(_FILES.items()):
        option = click.option(
            f"--broker-{name}-file", envvar=f"EDGEMETER_MQTT_{name.upper()}_FILE", type=click.Path(path_type=Path), help=text
        )
        command = option(command)
    return command
