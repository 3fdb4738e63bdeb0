"""The manifest of a bundle: which files lie in it, what each must be, and how the raw samples are to be read."""

import re
from typing import Annotated, Literal

import msgspec

from edgemeter.agent.errors import ConfigError
from edgemeter.agent.records import Count, Sha256

VERSION = 1
SUFFIX = ".edgemeter"

MANIFEST, SIGNATURE, SIGNER = "manifest.json", "manifest.sig", "signer.pem"
RECORD, CASE, SUITE = "record.json", "case.json", "suite.toml"
# What is signed and what signs it cannot stand in what is signed.
UNLISTED = frozenset({MANIFEST, SIGNATURE, SIGNER})

# A bundle is never unpacked to disk; a name that could lead anywhere is refused all the same.
NAME = re.compile(
    r"(?:manifest\.json|manifest\.sig|signer\.pem|record\.json|case\.json|suite\.toml|samples/[A-Za-z0-9_][A-Za-z0-9._-]{0,99})\Z"
)


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """One file of the bundle."""

    file: str
    size_bytes: Count
    sha256: Sha256


class SeriesFile(msgspec.Struct, frozen=True, kw_only=True):
    """One series of raw samples: `count` numbers of `dtype` without anything between them."""

    name: str
    unit: str
    dtype: Literal["<u4", "<i8", "<f8"]
    count: Count
    file: str


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What `manifest.json` says. `written_by` is the version of the agent that wrote the bundle."""

    format: Literal["edgemeter-bundle"] = "edgemeter-bundle"
    version: Annotated[int, msgspec.Meta(ge=1)] = VERSION
    record: str
    written_by: str
    members: tuple[Member, ...]
    series: tuple[SeriesFile, ...] = ()


def encode(manifest: Manifest) -> bytes:
    """Return the manifest as the text that gets hashed and signed."""
    return msgspec.json.format(msgspec.json.encode(manifest), indent=1) + b"\n"


def decode(text: bytes) -> Manifest:
    """Return the manifest that `text` holds.

    Raises:
        ConfigError: it is none, or of a newer version than this edgemeter reads.
    """
    try:
        manifest = msgspec.json.decode(text, type=Manifest)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        message = f"{MANIFEST} is not a bundle's: {error}"
        raise ConfigError(message) from error
    if manifest.version > VERSION:
        message = f"the bundle has version {manifest.version}, this edgemeter reads up to {VERSION}: update edgemeter here"
        raise ConfigError(message)
    return manifest
