"""Signs a manifest with the fleet's release key: ECDSA on P-256 over SHA-256, by `openssl`, which devices check it with too."""

import subprocess
from pathlib import Path

from edgemeter.agent.errors import ConfigError, UnavailableError

TIMEOUT_S = 60


def sign(document: bytes, key: Path) -> bytes:
    """Return the signature in DER.

    Raises:
        ConfigError: there is no such key, or it is of another kind.
        UnavailableError: openssl is not here.
    """
    if not key.is_file():
        message = f"there is no release key {str(key)!r} to sign the bundle with: `edgemeter fleet init` makes one, or give --key FILE"
        raise ConfigError(message)
    if b"prime256v1" not in _openssl("pkey", "-in", str(key), "-noout", "-text", what=f"read the release key {str(key)!r}"):
        message = f"the release key {str(key)!r} is no ECDSA key on P-256: `edgemeter fleet init` makes one"
        raise ConfigError(message)
    return _openssl("dgst", "-sha256", "-sign", str(key), what="sign the bundle", given=document)


def _openssl(*arguments: str, what: str, given: bytes = b"") -> bytes:
    try:
        done = subprocess.run(["openssl", *arguments], input=given, capture_output=True, timeout=TIMEOUT_S, check=False)
    except FileNotFoundError as error:
        message = f"cannot {what}: openssl is not here: install the package openssl"
        raise UnavailableError(message) from error
    except (OSError, subprocess.SubprocessError) as error:
        message = f"cannot {what}: openssl: {error}"
        raise UnavailableError(message) from error
    if done.returncode != 0:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        message = f"cannot {what}: openssl: {said[-1] if said else done.returncode}: give a private key in PEM without a passphrase"
        raise ConfigError(message)
    return done.stdout
