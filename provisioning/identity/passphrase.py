"""Passphrases of the authority's key and of backups: from a file, else from the terminal; never from a command line."""

import getpass
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from edgemeter.agent.base.errors import ConfigError

AUTHORITY_VARIABLE = "EDGEMETER_CA_PASSPHRASE_FILE"
BACKUP_VARIABLE = "EDGEMETER_BACKUP_PASSPHRASE_FILE"


def is_encrypted(key: bytes) -> bool:
    """Return whether a passphrase protects a private key in PEM."""
    return b"ENCRYPTED" in key


def ask_passphrase(secret: str, variable: str, *, is_new: bool = False, environ: Mapping[str, str] = os.environ) -> str:
    """Return a passphrase: the first line of the file in `variable`, else as typed, a new one twice; raises ConfigError without one."""
    file = environ.get(variable)
    if file:
        return read_passphrase(Path(file).expanduser())
    if not sys.stdin.isatty():
        raise ConfigError(f"{secret} needs a passphrase, and there is no terminal to ask on: name a file that holds it in ${variable}")
    typed = getpass.getpass(f"Passphrase of {secret}: ")
    if is_new and typed != getpass.getpass("The same again: "):
        raise ConfigError("the two passphrases differ: run the command again")
    return _not_empty(typed, "what was typed")


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
