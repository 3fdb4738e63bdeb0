"""The passphrase of the authority's key: from a file, else from the terminal; never from a command line."""

import getpass
import os
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from edgemeter.agent.base.errors import ConfigError

AUTHORITY_VARIABLE = "EDGEMETER_CA_PASSPHRASE_FILE"


def is_encrypted(key: bytes) -> bool:
    """Return whether a passphrase protects a private key in PEM."""
    return b"ENCRYPTED" in key


def ask_passphrase(environ: Mapping[str, str] = os.environ) -> str:
    """Return the passphrase of ca.key: the first line of the file in `AUTHORITY_VARIABLE`, else as typed; raises ConfigError without."""
    file = environ.get(AUTHORITY_VARIABLE)
    if file:
        return read_passphrase(Path(file).expanduser())
    if not sys.stdin.isatty():
        raise ConfigError(
            f"ca.key needs a passphrase, and there is no terminal to ask on: name a file that holds it in ${AUTHORITY_VARIABLE}"
        )
    return _typed()


@cache
def _typed() -> str:
    # The service needs it in two places.
    return _not_empty(getpass.getpass("Passphrase of ca.key: "), "what was typed")


def read_passphrase(path: Path) -> str:
    """Return the first line of a file; raises ConfigError if it cannot be read, or has none."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the passphrase in {str(path)!r} ({error}): write it there as one line of text") from error
    return _not_empty(lines[0] if lines else "", repr(str(path)))


def _not_empty(passphrase: str, where: str) -> str:
    if not passphrase.strip():
        raise ConfigError(f"the passphrase in {where} is empty: write one line of text")
    return passphrase
