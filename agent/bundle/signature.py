"""Signs a bundle's manifest, and verifies signatures (Ed25519, library `cryptography`).

A signature proves that the owner of the key wrote this bundle, and that nothing in it has changed;
not that its figures are right. Every function raises UnavailableError if the library is not
installed, and ConfigError if a file cannot be read or written. Keys are PEM files: PKCS #8 without
a passphrase, and SubjectPublicKeyInfo. A fingerprint is the sha256 of the latter's DER form.
"""

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from edgemeter.agent.base.errors import ConfigError, EdgemeterError
from edgemeter.agent.base.plugins import ModuleOfExtra

_NEED = "signatures need the library cryptography"
_serialization = ModuleOfExtra("cryptography.hazmat.primitives.serialization", "sign", _NEED)
_ed25519 = ModuleOfExtra("cryptography.hazmat.primitives.asymmetric.ed25519", "sign", _NEED)
_exceptions = ModuleOfExtra("cryptography.exceptions", "sign", _NEED)


class WrongSignatureError(EdgemeterError):
    """The signature does not match this manifest and key."""


@dataclass(frozen=True, slots=True)
class Signer:
    """Signs with one key: `sign` returns the signature of a manifest, 64 bytes."""

    sign: Callable[[bytes], bytes]
    public_pem: bytes


def signer(path: Path) -> Signer:
    """Return the signer with the private key in a file.

    Raises:
        ConfigError: it cannot be read, or contains no such key.
    """
    try:
        key = _serialization.load_pem_private_key(_key_file(path), password=None)
    except (ValueError, TypeError, _exceptions.UnsupportedAlgorithm) as error:
        raise ConfigError(
            f"{str(path)!r} is not a private key in PEM without a passphrase: make one with "
            "`edgemeter runs bundle key FILE`"
        ) from error
    if not isinstance(key, _ed25519.Ed25519PrivateKey):
        raise ConfigError(
            f"the key in {str(path)!r} is not an Ed25519 key: make one with `edgemeter runs "
            "bundle key FILE`"
        )
    return Signer(key.sign, _public_bytes(key.public_key(), "PEM"))


def keygen(path: Path) -> tuple[Path, str]:
    """Write a new private key to `path` (mode 0600) and its public key to `path`.pub.

    Returns the path of the public key and its fingerprint.
    """
    key = _ed25519.Ed25519PrivateKey.generate()
    private = key.private_bytes(
        _serialization.Encoding.PEM,
        _serialization.PrivateFormat.PKCS8,
        _serialization.NoEncryption(),
    )
    public, public_pem = path.with_name(path.name + ".pub"), _public_bytes(key.public_key(), "PEM")
    try:
        if public.exists():
            raise FileExistsError(17, "File exists", str(public))
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(private)
        public.write_bytes(public_pem)
    except OSError as error:
        raise ConfigError(
            f"cannot write the key {str(error.filename or path)!r}: {error.strerror}: use "
            "another file"
        ) from error
    return public, fingerprint(public_pem)


def fingerprint(public_pem: bytes) -> str:
    """Return the sha256 of a public key's DER form, 64 hex digits.

    Raises:
        ConfigError: it is not an Ed25519 public key in PEM.
    """
    return hashlib.sha256(_public_bytes(_public_key(public_pem), "DER")).hexdigest()


def fingerprint_of_file(path: Path) -> str:
    """Return the fingerprint of the public key in a file.

    Raises:
        ConfigError: it cannot be read, or contains no such key.
    """
    public_pem = _key_file(path)
    try:
        return fingerprint(public_pem)
    except ConfigError as error:
        raise ConfigError(f"{str(path)!r}: {error}") from error


def check_signature(manifest: bytes, signature: bytes, public_pem: bytes) -> str:
    """Return the fingerprint of the key that signed the manifest.

    Raises:
        WrongSignatureError: the key did not sign it.
    """
    try:
        _public_key(public_pem).verify(signature, manifest)
    except ConfigError as error:
        raise WrongSignatureError(f"its key is invalid: {error}") from error
    except _exceptions.InvalidSignature as error:
        raise WrongSignatureError(
            "the signature does not match this manifest and key: the bundle was changed, or the "
            "signature is that of another bundle"
        ) from error
    return fingerprint(public_pem)


def _public_key(public_pem: bytes) -> Any:
    try:
        key = _serialization.load_pem_public_key(public_pem)
    except (ValueError, _exceptions.UnsupportedAlgorithm) as error:
        raise ConfigError(
            "it is not a public key in PEM: `edgemeter runs bundle key FILE` writes one to FILE.pub"
        ) from error
    if not isinstance(key, _ed25519.Ed25519PublicKey):
        raise ConfigError(
            "it is not an Ed25519 key: `edgemeter runs bundle key FILE` writes one to FILE.pub"
        )
    return key


def _public_bytes(key: Any, encoding: Literal["PEM", "DER"]) -> bytes:
    content: bytes = key.public_bytes(
        getattr(_serialization.Encoding, encoding), _serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return content


def _key_file(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot read the key {str(path)!r}: {error.strerror}") from error
