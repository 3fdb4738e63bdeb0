"""The device's own key and its requests for certificates, by the program `openssl`: no library for it has to be on the board."""

import os
import subprocess
import tempfile
from pathlib import Path

from edgemeter.agent import durable_file
from edgemeter.agent.errors import UnavailableError

OPENSSL_S = 60.0
_CURVE = "prime256v1"


def make(path: Path) -> None:
    """Write a new P-256 key to `path`, for its owner alone.

    Raises:
        UnavailableError: there is no openssl, it fails, or the file cannot be written.
    """
    key = _openssl("genpkey", "-algorithm", "EC", "-pkeyopt", f"ec_paramgen_curve:{_CURVE}")
    durable_file.write(path, key)


def request(path: Path, common_name: str | None) -> str:
    """Return a certificate signing request, PEM, for the key in `path`; without a name where there is none yet.

    Raises:
        UnavailableError: there is no openssl, it fails, or the key cannot be read.
    """
    # A configuration of our own: a board's own one may be missing or ask for countries and cities.
    with tempfile.NamedTemporaryFile("w", suffix=".cnf") as settings:
        settings.write(f"[req]\nprompt = no\nutf8 = yes\nstring_mask = utf8only\ndistinguished_name = name\n[name]\n{_name(common_name)}")
        settings.flush()
        subject = [] if common_name else ["-subj", "/"]
        made = _openssl("req", "-new", "-batch", "-sha256", "-key", str(path), "-config", settings.name, *subject)
    return made.decode("ascii")


def belong_together(certificate: Path, key: Path) -> bool:
    """Return whether the certificate is one for that key; False where either cannot be read."""
    try:
        return _openssl("x509", "-in", str(certificate), "-noout", "-pubkey") == _openssl("pkey", "-in", str(key), "-pubout")
    except UnavailableError:
        return False


def _name(common_name: str | None) -> str:
    if common_name is None:
        return ""
    escaped = common_name.replace("\\", "\\\\").replace("$", "\\$").replace("#", "\\#")
    return f'CN = "{escaped}"\n'


def _openssl(*arguments: str) -> bytes:
    environment = {**os.environ, "LC_ALL": "C"}
    try:
        done = subprocess.run(
            ["openssl", *arguments], stdin=subprocess.DEVNULL, capture_output=True, timeout=OPENSSL_S, env=environment, check=False
        )
    except FileNotFoundError as error:
        message = "there is no program openssl on this device, which makes its key: apt-get install openssl"
        raise UnavailableError(message) from error
    except (OSError, subprocess.SubprocessError) as error:
        message = f"openssl {arguments[0]} does not run ({error}): try again"
        raise UnavailableError(message) from error
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        message = f"openssl {arguments[0]} failed ({said[0] if said else done.returncode}): look at the disk and at the key file"
        raise UnavailableError(message)
    return done.stdout
