"""TLS and secrets for the servers that we connect to.

They are files with user name, password, certificates and key.
"""

import logging
import os
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from edgemeter.agent.base.errors import ConfigError, UnavailableError, one_line, os_error_as

logger = logging.getLogger(__name__)

# By the code of a fault of a peer's certificate. Source: OpenSSL's names for them,
# X509_verify_cert_error_string(3).
_REMEDIES = {
    **dict.fromkeys((10, 12), "it has expired: renew it, or set the clock of this device"),
    **dict.fromkeys((9, 11), "it is not valid yet: set the clock of this device"),
    **dict.fromkeys(
        (62, 64), "it is for another name: connect to the broker by the name in its certificate"
    ),
}
# Source: OpenSSL x509_vfy.h, X509_V_FLAG_NO_CHECK_TIME; all certificates of a fleet are valid from
# this year on.
_NO_CHECK_TIME = 0x200000
_CLOCK_WAS_SET_S = 1_577_836_800

# Errors of a model server's certificate.
OF_ANOTHER_NAME = "its certificate is for another name: set url to that name"
OF_UNKNOWN_AUTHORITY = (
    "its certificate is from an unknown authority: give that authority as ca_file in the "
    "server's file"
)


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """The files of a TLS connection.

    `ca` is trusted instead of the system's authorities; `certificate` and `key` are our own, for a
    broker that requires them (mTLS).
    """

    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None


def broker_password(file: Path | None, environ: Mapping[str, str] = os.environ) -> str | None:
    """Return the password for the broker, from `file`, else from the environment.

    Raises:
        ConfigError: the file cannot be read.
    """
    return (
        environ.get("EDGEMETER_MQTT_PASSWORD")
        if file is None
        else password_from(str(file), "the broker", "password file")
    )


def password_from(path: str, who: str, key: str = "password_file") -> str:
    """Return the password of `who` in the file at `path` of the setting `key`.

    Raises:
        ConfigError: it cannot be read.
    """
    try:
        return Path(path).expanduser().read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"cannot read the {key} {path!r} of {who} ({error}): write it there as one line of text"
        ) from error


def check(files: TlsFiles) -> None:
    """Check that the files can be read; raises ConfigError if one cannot."""
    for kind, path in (
        ("CA certificate", files.ca),
        ("certificate", files.certificate),
        ("key", files.key),
    ):
        if path is not None:
            with os_error_as(
                ConfigError,
                f"cannot read the broker's {kind} {str(path)!r}",
                "correct the path, or let this user read it",
            ):
                path.read_bytes()


def tls_context(files: TlsFiles) -> ssl.SSLContext:
    """Return the context of TLS connections to a broker.

    It is TLS 1.2 or newer, and the broker's certificate and name are verified.

    Raises:
        ConfigError: a file cannot be read or holds something else, or key and certificate do not
            belong together.
    """
    check(files)
    try:
        context = ssl.create_default_context(cafile=files.ca)
    except ssl.SSLError as error:
        raise ConfigError(
            f"{str(files.ca)!r} contains no CA certificate ({_reason(error)}): give the "
            "authority's certificate as PEM"
        ) from error
    _apply_clock(context, files)
    if files.certificate is None:
        if files.key is not None:
            raise ConfigError(
                f"there is a key {str(files.key)!r} and no certificate for it: name both, "
                "?certificate=FILE&key=FILE"
            )
        return context
    try:
        context.load_cert_chain(files.certificate, files.key, password=_no_passphrase)
    except ssl.SSLError as error:
        key = str(files.key or files.certificate)
        raise ConfigError(
            f"{str(files.certificate)!r} and {key!r} are not a certificate with its key "
            f"({_reason(error)}): "
            "give both as PEM, the key without a passphrase, made for each other"
        ) from error
    return context


def server_tls_context(ca_file: str | None) -> ssl.SSLContext:
    """Return the context that verifies a model server by this authority, or the system's.

    Raises:
        ConfigError: the authority cannot be read.
    """
    try:
        return ssl.create_default_context(
            cafile=None if ca_file is None else str(Path(ca_file).expanduser())
        )
    except OSError as error:
        raise ConfigError(
            f"cannot read the ca_file {ca_file!r}: {one_line(error)}; give a certificate "
            "in PEM form"
        ) from error


def renew(context: ssl.SSLContext, files: TlsFiles) -> None:
    """Reload the files for the next connection: certificates are renewed while the daemon runs."""
    _apply_clock(context, files)
    try:
        if files.ca is not None:
            context.load_verify_locations(files.ca)
        if files.certificate is not None:
            context.load_cert_chain(files.certificate, files.key, password=_no_passphrase)
    except OSError as error:
        logger.warning(
            "cannot reload the certificates for the broker (%s): the previous ones stay in use",
            error,
        )


def tls_refusal(where: object, error: ssl.SSLError) -> ConfigError | UnavailableError:
    """Return the error of a failed TLS handshake with the broker at `where`, with its remedy."""
    if not isinstance(error, ssl.SSLCertVerificationError):
        return _handshake_error(where, error)
    remedy = _REMEDIES.get(
        error.verify_code,
        "no trusted CA signed it: name the CA certificate in the address, mqtts://HOST?ca=FILE",
    )
    return UnavailableError(
        f"the certificate of the broker at {where} is not valid ({error.verify_message}): {remedy}"
    )


def _apply_clock(context: ssl.SSLContext, files: TlsFiles) -> None:
    """Ignore dates on a board whose clock was never set, if the authority is our own.

    The board must connect to learn the time.
    """
    if files.ca is not None and time.time() < _CLOCK_WAS_SET_S:
        context.verify_flags |= _NO_CHECK_TIME
    else:
        context.verify_flags &= ~_NO_CHECK_TIME


def _handshake_error(where: object, error: ssl.SSLError) -> ConfigError | UnavailableError:
    reason = _reason(error)
    if "CERTIFICATE_REQUIRED" in reason or "HANDSHAKE_FAILURE" in reason:
        return ConfigError(
            f"the broker at {where} requires a client certificate: name it in the address, "
            "mqtts://HOST?certificate=FILE&key=FILE"
        )
    if "REVOKED" in reason:
        return ConfigError(
            f"the broker at {where} refuses our certificate ({reason}): this device is revoked, "
            "or banned for a time; "
            "`edgemeter fleet list` on the server says which"
        )
    if "ALERT" in reason:
        return ConfigError(
            f"the broker at {where} rejects our certificate ({reason}): check that the broker's "
            "CA signed it, and that it is still valid"
        )
    return UnavailableError(
        f"no TLS with the broker at {where} ({reason}): check that this port speaks TLS"
    )


def _no_passphrase() -> str:
    # Otherwise OpenSSL asks on the terminal, and a service hangs.
    return ""


def _reason(error: ssl.SSLError) -> str:
    # An error that OpenSSL did not create has no reason.
    return getattr(error, "reason", None) or error.strerror or str(error)
