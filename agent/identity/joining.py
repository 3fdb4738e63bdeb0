"""How a device joins a fleet: a key made here, a certificate for it against a token, a configuration to measure and deliver with."""

import logging
import re
import time
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from edgemeter.agent import durable_file
from edgemeter.agent.delivery import broker_address, credentials
from edgemeter.agent.delivery.broker_address import BrokerAddress
from edgemeter.agent.delivery.credentials import TlsFiles
from edgemeter.agent.errors import ConfigError, EdgemeterError, UnavailableError
from edgemeter.agent.identity import board_serial, join_file, messages, own, own_key
from edgemeter.agent.identity.board_serial import BoardSerial
from edgemeter.agent.identity.conversation import Conversation
from edgemeter.agent.identity.join_file import JoinFile
from edgemeter.agent.identity.messages import Answer, Ask
from edgemeter.agent.identity.own import Identity, IdentityFiles
from edgemeter.agent.machine import board
from edgemeter.agent.machine.machine import THIS_MACHINE, Machine

logger = logging.getLogger(__name__)

CONFIG = Path("/etc/edgemeter/config.toml")
PATIENCE_S = 600.0
_TRIES = 3
_TOKEN_S = 1.5


@dataclass(frozen=True, slots=True)
class Places:
    """Where the identity and the configuration are kept."""

    home: Path
    config: Path = CONFIG


def join(path: Path, places: Places, machine: Machine = THIS_MACHINE, patience_s: float = PATIENCE_S) -> Identity:
    """Join the fleet of the join file at `path`, or find that this board has; wipe the file's secrets; return who the device is now.

    Raises:
        ConfigError: the join file is wrong or has no token any more, or the fleet refuses this board.
        TransientError: no broker answers, or nobody has accepted this board yet: try again later.
        UnavailableError: a file cannot be written, or there is no openssl.
    """
    wanted = join_file.read(path)
    files = IdentityFiles(places.home)
    identity = _joined_before(places, machine)
    if identity is None or (wanted.token and messages.claim_of(wanted.token) != identity.claim):
        identity = _claim(wanted, places, machine, patience_s)
    configure(places, identity, wanted.content_url)
    # The token has served: were it wiped later than the marker is made, a power cut between would leave it on the card for ever.
    _wipe(path)
    durable_file.write(files.joined, b"", 0o644)
    return identity


def take(files: IdentityFiles, answer: Answer, serial: BoardSerial, broker: str, claim: str | None) -> Identity:
    """Keep the certificate of an accepting answer for the key in `files.next_key`, or the device's own key; return who the device is now.

    Raises:
        ConfigError: the answer holds no certificate, or one of another key.
        UnavailableError: a file cannot be written.
    """
    if answer.certificate is None or answer.number is None or answer.not_after_ns is None or answer.device is None or answer.fleet is None:
        message = "the enrolment desk accepted this board and sent no certificate: update the fleet's server"
        raise ConfigError(message)
    arrived = files.folder / "next.crt"
    durable_file.write(arrived, answer.certificate.encode())
    key = files.next_key if files.next_key.exists() else files.key
    if not own_key.belong_together(arrived, key):
        message = "the enrolment desk sent a certificate for another key: ask it again"
        raise ConfigError(message)
    identity = Identity(
        device=answer.device,
        fleet=answer.fleet,
        serial=serial.serial,
        serial_source=serial.source,
        serial_path=serial.path,
        broker=broker,
        number=answer.number,
        claim=claim,
        issued_ns=answer.now_ns,
        not_after_ns=answer.not_after_ns,
        seen_ns=answer.now_ns,
    )
    durable_file.write(files.folder / "next.json", msgspec.json.encode(identity))
    return settle(files) or identity


def settle(files: IdentityFiles) -> Identity | None:
    """Put what arrived in the place of what was, also when the power went in between; return the new identity, None when none arrived.

    Raises:
        UnavailableError: a file cannot be moved.
    """
    arrived = files.folder / "next.json"
    if not arrived.exists():
        return None
    try:
        # `next.json` goes last: as long as it is there, this is done again.
        for name, place in (("next.key", files.key), ("next.crt", files.certificate)):
            if (files.folder / name).exists():
                (files.folder / name).replace(place)
        durable_file.sync_folder(files.folder)
        arrived.replace(files.identity)
        durable_file.sync_folder(files.folder)
    except OSError as error:
        message = f"cannot put the new certificate into {str(files.folder)!r} ({error.strerror}): check its owner"
        raise UnavailableError(message) from error
    return own.read(files.home)


def configure(places: Places, identity: Identity, content_url: str | None = None) -> None:
    """Write who the device is and how it reaches the broker into the configuration; what else stands there stays.

    Raises:
        UnavailableError: it cannot be written.
    """
    files = IdentityFiles(places.home)
    said = {
        "device": identity.device,
        "fleet": identity.fleet,
        "broker": identity.broker,
        "broker_ca_file": str(files.ca.absolute()),
        "broker_certificate_file": str(files.certificate.absolute()),
        "broker_key_file": str(files.key.absolute()),
        **({"content_url": content_url} if content_url else {}),
    }
    try:
        before = places.config.read_text(encoding="utf-8") if places.config.exists() else ""
    except (OSError, UnicodeDecodeError) as error:
        message = f"cannot read the configuration {str(places.config)!r} ({error}): correct it, or name another with --config"
        raise UnavailableError(message) from error
    # Only above the first table: below it the same words are keys of that table.
    head, table, rest = re.match(r"(.*?)(^[ \t]*\[|\Z)(.*)", before, re.DOTALL | re.MULTILINE).groups()  # type: ignore[union-attr]
    ours = re.compile(rf"^[ \t]*(?:{'|'.join(said)})[ \t]*=.*(?:\n|\Z)", re.MULTILINE)
    kept = ours.sub("", head)
    lines = "".join(f"{name} = {msgspec.json.encode(value).decode()}\n" for name, value in said.items())
    after = f"{lines}{kept}{table}{rest}"
    if after != before:
        durable_file.write(places.config, after.encode(), 0o644)


def _joined_before(places: Places, machine: Machine) -> Identity | None:
    files = IdentityFiles(places.home)
    settle(files)
    identity = own.read(places.home)
    if identity is None or own.is_other_board(places.home, machine) or not own_key.belong_together(files.certificate, files.key):
        return None
    return identity


def _claim(wanted: JoinFile, places: Places, machine: Machine, patience_s: float) -> Identity:
    if not wanted.token:
        message = "the join file has no token any more, and this board has no identity: make another with `edgemeter fleet token`"
        raise ConfigError(message)
    files = IdentityFiles(places.home)
    _make_private(files.folder)
    durable_file.write(files.ca, wanted.ca.encode(), 0o644)
    serial = _serial(files, machine)
    claim = messages.claim_of(wanted.token)
    address = _enrol_address(wanted, claim, files.ca)
    # A damaged file is said as what it is, before anybody is asked.
    credentials.tls_context(TlsFiles(ca=files.ca))
    with Conversation(address, claim, messages.request_topic(claim), messages.answer_topic(claim)) as talk:
        for _ in range(_TRIES):
            if not files.next_key.exists():
                own_key.make(files.next_key)
            question = Ask(
                csr=own_key.request(files.next_key, wanted.device),
                serial=serial.serial,
                serial_source=serial.source,
                board=(board.model(machine) or "")[:200] or None,
                device=wanted.device,
            )
            answer = _asked(talk, question, patience_s, address)
            if answer.state == "accepted":
                identity = take(files, answer, serial, wanted.broker, claim)
                talk.confirm(identity.number)
                return identity
            if answer.state != "again":
                break
            # The key came with a copied card.
            logger.warning("the fleet says: %s; a new key is made", answer.reason)
            files.next_key.unlink()
    message = f"the fleet {wanted.fleet!r} refuses this board: {answer.reason}"
    raise ConfigError(message)


def _make_private(folder: Path) -> None:
    try:
        durable_file.make_folder(folder, 0o700)
    except OSError as error:
        message = f"cannot make the folder {str(folder)!r} ({error.strerror}): check who owns the one above, or name another with --home"
        raise UnavailableError(message) from error


def _serial(files: IdentityFiles, machine: Machine) -> BoardSerial:
    found = board_serial.read(machine)
    if found.path is not None:
        return found
    # Drawn once: a board without any number is the same one with the next try.
    drawn = files.folder / "drawn-serial"
    if not drawn.exists():
        durable_file.write(drawn, found.serial.encode())
    return BoardSerial(drawn.read_text(encoding="ascii"), found.source, None)


def _asked(talk: Conversation, question: Ask, patience_s: float, address: BrokerAddress) -> Answer:
    for left in range(_TRIES - 1, -1, -1):
        try:
            return talk.ask(question, patience_s)
        except ConfigError as error:
            if "password" not in str(error).lower() and "uthori" not in str(error):
                raise
            refused = error
        if left:
            # One that was made a moment ago is good when the broker has read its files.
            time.sleep(_TOKEN_S)
    message = (
        f"the broker at {address} does not take this token: it was used, has expired or is another fleet's; "
        "make another with `edgemeter fleet token`"
    )
    raise ConfigError(message) from refused


def _enrol_address(wanted: JoinFile, claim: str, ca: Path) -> BrokerAddress:
    if urlsplit(wanted.enrol).scheme != "mqtts" or urlsplit(wanted.broker).scheme != "mqtts":
        message = f"the join file names {wanted.enrol!r} and {wanted.broker!r}: both have to be mqtts://, a token travels over TLS only"
        raise ConfigError(message)
    found = broker_address.parse(wanted.enrol, environ={})
    return BrokerAddress(found.host, found.port, "mqtts", claim, wanted.token, TlsFiles(ca=ca))


def _wipe(path: Path) -> None:
    try:
        join_file.wipe(path)
    except EdgemeterError as error:
        # The board has joined, and the token serves nobody any more.
        logger.warning("%s", error)
