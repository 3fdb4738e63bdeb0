"""Joining a fleet: a new key, a certificate for it in exchange for a token, and a configuration."""

import logging
import os
import re
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from edgemeter.agent.base import broker_url, durable_file
from edgemeter.agent.base.errors import ConfigError, EdgemeterError, UnavailableError, os_error_as
from edgemeter.agent.base.tls import TlsFiles, tls_context
from edgemeter.agent.contract.identity import (
    CertificateRequest,
    EnrolmentAnswer,
    JoinFile,
    read_join_file,
    token_id,
)
from edgemeter.agent.identity.enrolment_client import EnrolmentClient
from edgemeter.agent.identity.identity import (
    BoardSerial,
    Identity,
    IdentityFiles,
    belong_together,
    certificate_request,
    differs_from_board,
    make_key,
    read_board_serial,
    read_identity,
)
from edgemeter.agent.machine import board
from edgemeter.agent.machine.machine import THIS_MACHINE, Machine

logger = logging.getLogger(__name__)

JOIN_TIMEOUT_S = 600.0
_TRIES = 3
# The secret of a join file; its value is a string on one line, as both `join_file_text` and people
# write it.
_SECRET = re.compile(
    rb"""^([ \t]*token[ \t]*=[ \t]*)("(?:[^"\\\r\n]|\\.)*"|'[^'\r\n]*')""", re.MULTILINE
)
_LINE = re.compile(rb"^[ \t]*token[ \t]*=.*(?:\r?\n|\Z)", re.MULTILINE)


def join_fleet(
    path: Path,
    home: Path,
    config: Path,
    machine: Machine = THIS_MACHINE,
    timeout_s: float = JOIN_TIMEOUT_S,
) -> Identity:
    """Join the fleet of the join file at `path`, unless this board has joined one.

    Wipes the file's secrets, and returns the device's name.

    The identity is stored in the agent's `home`; `config` is its configuration.

    Raises:
        ConfigError: the join file is wrong or its token is gone, or the fleet refuses this board.
        TransientError: no broker answers, or this board is not approved yet: try again later.
        UnavailableError: a file cannot be written, or there is no openssl.
    """
    join_file = read_join_file(path)
    files = IdentityFiles(home)
    identity = _joined_before(files, machine)
    if identity is None or (join_file.token and token_id(join_file.token) != identity.claim):
        identity = _enrol(join_file, files, machine, timeout_s)
    configure(files, config, identity)
    # The token is used: if it were wiped after the marker is made, a power cut in between would
    # leave it on the card for ever.
    try:
        wipe_secrets(path)
    except EdgemeterError as error:
        # The board has joined: the token is used up.
        logger.warning("%s", error)
    durable_file.write(files.joined, b"", 0o644)
    return identity


def take_certificate(
    files: IdentityFiles,
    answer: EnrolmentAnswer,
    serial: BoardSerial,
    broker: str,
    service: str,
    claim: str | None,
) -> Identity:
    """Store the certificate of an accepting answer, and return the device's name.

    It is for the key in `files.next_key`, or the device's own key.

    Raises:
        ConfigError: the fleet did not accept; the answer contains no certificate, or one for
            another key.
        UnavailableError: a file cannot be written.
    """
    if answer.state != "accepted":
        raise ConfigError(f"the fleet does not accept this board ({answer.state}): {answer.reason}")
    if (
        answer.certificate is None
        or answer.number is None
        or answer.not_after_ns is None
        or answer.device is None
        or answer.fleet is None
    ):
        raise ConfigError(
            "the enrolment service accepted this board and sent no certificate: update the "
            "fleet's server"
        )
    arrived = files.folder / "next.crt"
    durable_file.write(arrived, answer.certificate.encode())
    key = files.next_key if files.next_key.exists() else files.key
    if not belong_together(arrived, key):
        raise ConfigError("the enrolment service sent a certificate for another key: try again")
    identity = Identity(
        device=answer.device,
        fleet=answer.fleet,
        board=serial,
        broker=broker,
        service=service,
        number=answer.number,
        claim=claim,
        issued_ns=answer.now_ns,
        not_after_ns=answer.not_after_ns,
    )
    durable_file.write(files.folder / "next.json", msgspec.json.encode(identity))
    settle_identity(files)
    return identity


def settle_identity(files: IdentityFiles) -> None:
    """Replace the old files by the new ones, if any arrived, also after a power cut in between.

    Raises:
        UnavailableError: a file cannot be moved.
    """
    arrived = files.folder / "next.json"
    if not arrived.exists():
        return
    with os_error_as(
        UnavailableError,
        f"cannot put the new certificate into {str(files.folder)!r}",
        "check its owner",
    ):
        # `next.json` goes last: while it exists, this is repeated.
        for name, target in (("next.key", files.key), ("next.crt", files.certificate)):
            if (files.folder / name).exists():
                (files.folder / name).replace(target)
        durable_file.sync(files.folder)
        arrived.replace(files.identity)
        durable_file.sync(files.folder)


def configure(files: IdentityFiles, config: Path, identity: Identity) -> None:
    """Write the device's name, the broker and the fleet's content address into the configuration.

    Its other settings stay.

    Raises:
        UnavailableError: it cannot be written.
    """
    settings = {
        "device": identity.device,
        "fleet": identity.fleet,
        "broker": broker_url.with_files(
            identity.broker,
            {
                "ca": files.ca.absolute(),
                "certificate": files.certificate.absolute(),
                "key": files.key.absolute(),
            },
        ),
        "content_url": f"{identity.service}/content",
    }
    try:
        before = config.read_text(encoding="utf-8") if config.exists() else ""
    except (OSError, UnicodeDecodeError) as error:
        raise UnavailableError(
            f"cannot read the configuration {str(config)!r} ({error}): correct it, or name "
            "another with --config"
        ) from error
    # Only above the first table: below it the same names are keys of that table.
    head, table, tail = re.match(
        r"(.*?)(^[ \t]*\[|\Z)(.*)", before, re.DOTALL | re.MULTILINE
    ).groups()  # type: ignore[union-attr]
    unmanaged = re.compile(rf"^[ \t]*(?:{'|'.join(settings)})[ \t]*=.*(?:\n|\Z)", re.MULTILINE).sub(
        "", head
    )
    lines = "".join(
        f"{name} = {msgspec.json.encode(value).decode()}\n" for name, value in settings.items()
    )
    after = f"{lines}{unmanaged}{table}{tail}"
    if after != before:
        durable_file.write(config, after.encode(), 0o644)


def _joined_before(files: IdentityFiles, machine: Machine) -> Identity | None:
    settle_identity(files)
    identity = read_identity(files.home)
    if (
        identity is None
        or differs_from_board(identity.board, machine)
        or not belong_together(files.certificate, files.key)
    ):
        return None
    return identity


def _enrol(
    join_file: JoinFile, files: IdentityFiles, machine: Machine, timeout_s: float
) -> Identity:
    if not join_file.token:
        raise ConfigError(
            "the join file has no token any more, and this board has no identity: make another "
            "with `edgemeter fleet token`"
        )
    if (
        urlsplit(join_file.service).scheme != "https"
        or urlsplit(join_file.broker).scheme != "mqtts"
    ):
        raise ConfigError(
            f"the join file names {join_file.service!r} and {join_file.broker!r}: these have to "
            "be https:// and mqtts://, "
            "a token travels over TLS only"
        )
    with os_error_as(
        UnavailableError,
        f"cannot make the folder {str(files.folder)!r}",
        "check who owns the one above, or name another with --home",
    ):
        durable_file.make_folder(files.folder, 0o700)
    durable_file.write(files.ca, join_file.ca.encode(), 0o644)
    serial = _serial(files, machine)
    request = CertificateRequest(
        csr="",
        serial=serial.serial,
        serial_source=serial.source,
        board=board_name(machine),
        token=join_file.token,
    )
    # A damaged file is reported before anything is sent.
    tls_context(TlsFiles(ca=files.ca))
    client = EnrolmentClient(join_file.service, TlsFiles(ca=files.ca))
    answer = ask_certificate(client, "/enrol", files, request, join_file.device, timeout_s)
    identity = take_certificate(
        files, answer, serial, join_file.broker, join_file.service, token_id(join_file.token)
    )
    EnrolmentClient(identity.service, files.tls).confirm()
    return identity


def ask_certificate(
    client: EnrolmentClient,
    path: str,
    files: IdentityFiles,
    request: CertificateRequest,
    common_name: str | None,
    timeout_s: float,
) -> EnrolmentAnswer:
    """Return the answer to `request` with a CSR for the key in `files.next_key`.

    A key from a copied card is replaced.

    Raises:
        UnavailableError: there is no openssl, or a file cannot be written.
        ConfigError, TransientError: as `EnrolmentClient.request`.
    """
    for _ in range(_TRIES):
        if not files.next_key.exists():
            make_key(files.next_key)
        signed = msgspec.structs.replace(
            request, csr=certificate_request(files.next_key, common_name)
        )
        answer = client.request(path, signed, timeout_s)
        if answer.state != "again":
            break
        logger.warning("the fleet reports: %s; making a new key", answer.reason)
        files.next_key.unlink()
    return answer


def board_name(machine: Machine) -> str | None:
    return (board.model(machine) or "")[:200] or None


def _serial(files: IdentityFiles, machine: Machine) -> BoardSerial:
    serial = read_board_serial(machine)
    if serial.path is not None:
        return serial
    # Drawn once: a board without any number keeps it for the next attempt.
    path = files.folder / "drawn-serial"
    if not path.exists():
        durable_file.write(path, serial.serial.encode())
    return BoardSerial(path.read_text(encoding="ascii"), serial.source, None)


def wipe_secrets(path: Path) -> bool:
    """Overwrite the secrets in `path` in place, then delete their lines.

    Returns whether there were any.

    A file system may still have copies elsewhere (flash moves rewritten data): a used token is
    worthless.

    Raises:
        UnavailableError: the file cannot be written: its medium is read-only, or it belongs to
            another user.
    """
    with os_error_as(
        UnavailableError,
        f"cannot wipe the secrets from {str(path)!r}",
        "make its medium writable, or delete it yourself",
    ):
        content = path.read_bytes()
        if not _LINE.search(content):
            return False
        filled = _SECRET.sub(
            lambda match: match[1] + match[2][:1] + b"x" * (len(match[2]) - 2) + match[2][-1:],
            content,
        )
        descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.pwrite(descriptor, filled, 0)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    durable_file.write(path, _LINE.sub(b"", filled))
    return True
