"""The fleet's certificate authority: keys and certificates, and the list of revoked ones.

Keys are on the curve P-256. X.509 is built directly on the library `cryptography`: no maintained
library issues device certificates and maintains a revocation list that mosquitto reads without a
certificate server. All certificates are valid from 2020 on: a board without a clock starts in some
past year.
"""

import hashlib
import ipaddress
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.nanoseconds import NS_PER_S
from edgemeter.agent.base.plugins import ModuleOfExtra
from edgemeter.agent.contract.sealed import SealedMessage
from edgemeter.provisioning.inventory.fleet_folder import FleetFolder
from edgemeter.provisioning.registry.certificates import Certificate

if TYPE_CHECKING:
    from cryptography import exceptions, x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
else:
    _NEED = "a fleet's certificates need the library cryptography"
    _NAMES = (
        "exceptions",
        "x509",
        "hazmat.primitives.hashes",
        "hazmat.primitives.serialization",
        "hazmat.primitives.asymmetric.ec",
    )
    exceptions, x509, hashes, serialization, ec = (
        ModuleOfExtra(f"cryptography.{name}", "sign", _NEED) for name in _NAMES
    )

NOT_BEFORE = datetime(2020, 1, 1, tzinfo=timezone.utc)
# The certificates of the fleet's servers, and the revocation list, last as long as its authority.
AUTHORITY_DAYS = 30 * 365
DEVICE_DAYS = 730
# OpenSSL uses the newer of two lists; backdated, each can be a second newer than the last, however
# quickly they follow.
DATED_BACK = timedelta(days=1)
LONGEST_NAME = 64  # Source: RFC 5280, ub-common-name.


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A certificate and its private key, PEM."""

    certificate: bytes
    key: bytes


@dataclass(frozen=True, slots=True)
class SigningRequest:
    """A CSR with a valid signature: the requested name, and its key (sha256 of the DER form)."""

    common_name: str | None
    key_sha256: str
    public_key: "ec.EllipticCurvePublicKey"


class Authority:
    """Signs with the authority's key."""

    def __init__(self, pair: KeyPair) -> None:
        try:
            self._certificate = x509.load_pem_x509_certificate(pair.certificate)
            key = serialization.load_pem_private_key(pair.key, password=None)
        except (ValueError, TypeError) as error:
            raise ConfigError(
                f"the authority's certificate or key cannot be read ({error}): restore ca.crt "
                "and ca.key from a backup"
            ) from error
        if (
            not isinstance(key, ec.EllipticCurvePrivateKey)
            or key.public_key() != self._certificate.public_key()
        ):
            raise ConfigError("ca.key is not the key of ca.crt: restore both from the same backup")
        self._key = key
        names = _common_names(self._certificate)
        if len(names) != 1:
            raise ConfigError(
                f"the authority in ca.crt is named {', '.join(map(repr, names)) or 'nothing'}: "
                "it needs one common name"
            )
        self._name = names[0]

    def issue(self, common_name: str, now: datetime, names: Iterable[str] = ()) -> KeyPair:
        """Return a certificate with a new key, for a server or for a client.

        A server has `names` (host names and addresses).
        """
        key = ec.generate_private_key(ec.SECP256R1())
        return KeyPair(
            _pem(
                self._sign(common_name[:LONGEST_NAME], key.public_key(), now, AUTHORITY_DAYS, names)
            ),
            _private_pem(key),
        )

    def issue_device(
        self, request: SigningRequest, device: str, serial: str, now_ns: int
    ) -> Certificate:
        """Return a certificate with the name `device` for the key of the request.

        Whatever name the request contains is ignored. The certificate is for the board `serial`.
        """
        certificate = self._sign(
            device,
            request.public_key,
            datetime.fromtimestamp(now_ns // NS_PER_S, timezone.utc),
            DEVICE_DAYS,
        )
        number, not_after_ns = (
            f"{certificate.serial_number:x}",
            int(certificate.not_valid_after_utc.timestamp()) * NS_PER_S,
        )
        return Certificate(
            number,
            device,
            serial,
            request.key_sha256,
            _pem(certificate).decode(),
            now_ns,
            not_after_ns,
        )

    def revoked_list(self, numbers: Iterable[str], now: datetime, previous: bytes | None) -> bytes:
        """Return the list (CRL, PEM) of the certificates with these numbers.

        It is newer than the `previous` one.
        """
        updated = now.replace(microsecond=0) - DATED_BACK
        if previous is not None:
            updated = max(
                updated, x509.load_pem_x509_crl(previous).last_update_utc + timedelta(seconds=1)
            )
        builder = x509.CertificateRevocationListBuilder(issuer_name=self._certificate.subject)
        builder = builder.last_update(updated).next_update(now + timedelta(days=AUTHORITY_DAYS))
        builder = builder.add_extension(self._identifier(), critical=False)
        # A list needs a growing number (RFC 5280, 5.2.3); OpenSSL uses the date.
        builder = builder.add_extension(x509.CRLNumber(int(updated.timestamp())), critical=False)
        for number in sorted(set(numbers)):
            entry = (
                x509.RevokedCertificateBuilder()
                .serial_number(int(number, 16))
                .revocation_date(updated)
                .build()
            )
            builder = builder.add_revoked_certificate(entry)
        return _pem(builder.sign(self._key, hashes.SHA256()))

    def name_hash(self) -> str:
        """Return the hash of the authority's name.

        OpenSSL finds the authority's revocation lists in a folder by it.
        Source: X509_NAME_hash of OpenSSL 1.0 and newer: SHA-1 of the name in UTF-8, lower case,
        spaces collapsed, without the outer header.
        """
        plain = "".join(
            letter.lower() if letter.isascii() else letter
            for letter in " ".join(self._name.split())
        )
        der = _subject(plain).public_bytes()
        body = der[2 + (der[1] & 0x7F if der[1] & 0x80 else 0) :]
        digest = hashlib.sha1(body, usedforsecurity=False).digest()
        return f"{int.from_bytes(digest[:4], 'little'):08x}"

    def _identifier(self) -> "x509.AuthorityKeyIdentifier":
        return x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())

    def _sign(
        self,
        common_name: str,
        key: "ec.EllipticCurvePublicKey",
        now: datetime,
        days: int,
        names: Iterable[str] = (),
    ) -> "x509.Certificate":
        alternatives = [_general_name(name) for name in sorted(set(names))]
        usages = x509.oid.ExtendedKeyUsageOID
        builder = _builder(
            common_name, self._certificate.subject, key, now, days, is_authority=False
        )
        builder = builder.add_extension(
            x509.ExtendedKeyUsage([usages.SERVER_AUTH if alternatives else usages.CLIENT_AUTH]),
            critical=False,
        )
        builder = builder.add_extension(self._identifier(), critical=False)
        if alternatives:
            builder = builder.add_extension(
                x509.SubjectAlternativeName(alternatives), critical=False
            )
        return builder.sign(self._key, hashes.SHA256())


def make_authority(name: str, now: datetime) -> KeyPair:
    """Return a new authority named `name`.

    Raises:
        UnavailableError: the library is not installed.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    builder = _builder(
        name, _subject(name), key.public_key(), now, AUTHORITY_DAYS, is_authority=True
    )
    return KeyPair(_pem(builder.sign(key, hashes.SHA256())), _private_pem(key))


def make_key() -> bytes:
    """Return a new private key, PEM; raises UnavailableError if the library is not installed."""
    return _private_pem(ec.generate_private_key(ec.SECP256R1()))


def public_of(private: bytes) -> bytes:
    """Return the public half of a private key, PEM.

    Raises:
        ConfigError: it is not a private key.
    """
    return _public_pem(_opened(private).public_key())


def checked_public(pem: bytes, path: Path) -> bytes:
    """Return a public key that can verify releases, PEM as openssl writes it.

    Raises:
        ConfigError: it is invalid, or not on P-256.
    """
    try:
        key = serialization.load_pem_public_key(pem)
    except (ValueError, exceptions.UnsupportedAlgorithm) as error:
        raise ConfigError(
            f"{str(path)!r} holds no readable public key: make it with `openssl ec -in "
            "release.key -pubout`"
        ) from error
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
        raise ConfigError(
            f"the public key in {str(path)!r} is not on P-256: make its pair with `openssl "
            "ecparam -name prime256v1 -genkey`"
        )
    return _public_pem(key)


def _public_pem(key: "ec.EllipticCurvePublicKey") -> bytes:
    return key.public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )


def _common_names(document: Any) -> list[str]:
    return [
        str(attribute.value)
        for attribute in document.subject.get_attributes_for_oid(x509.oid.NameOID.COMMON_NAME)
    ]


def read_request(pem: str) -> SigningRequest:
    """Return the parsed CSR.

    Raises:
        ConfigError: it is invalid, was not signed by its own key, or its key is not on P-256.
    """
    try:
        request = x509.load_pem_x509_csr(pem.encode())
        key: Any = request.public_key()
        names = _common_names(request)
        holds = request.is_signature_valid
    except (ValueError, exceptions.UnsupportedAlgorithm) as error:
        raise ConfigError(
            "not a certificate signing request "
            f"({str(error).splitlines()[0] if str(error) else 'unreadable'}): make "
            "it with openssl"
        ) from error
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
        raise ConfigError(
            "the certificate signing request does not have a P-256 key: make it with prime256v1"
        )
    if not holds:
        raise ConfigError(
            "the certificate signing request was not signed by its own key: make a new one"
        )
    if len(names) > 1:
        raise ConfigError(
            f"the certificate signing request has {len(names)} common names: give one"
        )
    key_sha256 = hashlib.sha256(
        key.public_bytes(
            serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
        )
    ).hexdigest()
    return SigningRequest(names[0] if names else None, key_sha256, key)


def names_of(certificate: bytes) -> set[str]:
    with suppress(x509.ExtensionNotFound):
        alternatives = (
            x509.load_pem_x509_certificate(certificate)
            .extensions.get_extension_for_class(x509.SubjectAlternativeName)
            .value
        )
        return {str(alternative.value) for alternative in alternatives}
    return set()


def revoked_numbers(listed: bytes) -> set[str]:
    """Return the numbers of the certificates in a revocation list.

    Raises:
        ConfigError: the list is invalid.
    """
    try:
        return {f"{entry.serial_number:x}" for entry in x509.load_pem_x509_crl(listed)}
    except ValueError as error:
        raise ConfigError(
            f"not a list of revoked certificates ({error}): remove the file and run `edgemeter "
            "fleet init` again"
        ) from error


def _opened(private: bytes) -> Any:
    try:
        return serialization.load_pem_private_key(private, password=None)
    except (ValueError, TypeError) as error:
        raise ConfigError(
            f"it is not a private key in PEM without a passphrase ({error}): restore it "
            "from a backup"
        ) from error


def _builder(
    common_name: str,
    issuer: "x509.Name",
    key: "ec.EllipticCurvePublicKey",
    now: datetime,
    days: int,
    *,
    is_authority: bool,
) -> "x509.CertificateBuilder":
    builder = x509.CertificateBuilder(
        issuer, _subject(common_name), key, x509.random_serial_number()
    )
    builder = builder.not_valid_before(NOT_BEFORE).not_valid_after(
        max(now, NOT_BEFORE) + timedelta(days=days)
    )
    builder = builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    builder = builder.add_extension(
        x509.BasicConstraints(ca=is_authority, path_length=0 if is_authority else None),
        critical=True,
    )
    usage = x509.KeyUsage(
        digital_signature=not is_authority,
        key_cert_sign=is_authority,
        crl_sign=is_authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
    return builder.add_extension(usage, critical=True)


def _subject(common_name: str) -> "x509.Name":
    return x509.Name([x509.NameAttribute(x509.oid.NameOID.COMMON_NAME, common_name)])


def _general_name(name: str) -> "x509.GeneralName":
    with suppress(ValueError):
        return x509.IPAddress(ipaddress.ip_address(name))
    try:
        return x509.DNSName(name)
    except ValueError as error:
        raise ConfigError(
            f"{name!r} is not a host name or address that a certificate can contain ({error}): "
            "write it in ASCII"
        ) from error


def _pem(document: Any) -> bytes:
    pem: bytes = document.public_bytes(serialization.Encoding.PEM)
    return pem


def _private_pem(key: "ec.EllipticCurvePrivateKey") -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


class ServiceKey:
    """Signs messages for boards (orders, receipts, answers) with `fleet.key`.

    The key is read on first use. A renewed key is used after a restart of the service.
    """

    def __init__(self, folder: FleetFolder) -> None:
        self._folder = folder
        self._certificate = ""
        self._sign: Callable[[bytes], bytes] | None = None

    def seal(self, document: bytes) -> bytes:
        """Return the payload with the signed `document`, JSON.

        Raises:
            ConfigError: there is no key.
            UnavailableError: the library is not installed.
        """
        if self._sign is None:
            certificate, key = self._folder.certificate("fleet"), self._folder.key("fleet")
            try:
                self._certificate, private = certificate.read_text(), key.read_bytes()
            except OSError as error:
                raise ConfigError(
                    f"cannot sign orders: {str(error.filename)!r}: {error.strerror}; `edgemeter "
                    "fleet init` makes it"
                ) from error
            self._sign = partial(
                _opened(private).sign, signature_algorithm=ec.ECDSA(hashes.SHA256())
            )
        sealed = SealedMessage(
            signature=self._sign(document),
            certificate=self._certificate,
            message=msgspec.Raw(document),
        )
        return msgspec.json.encode(sealed)
