"""A card that was copied or moved to another board: it makes a key of its own and asks for a name, by the certificate that it came with.

Until somebody has accepted it (`edgemeter fleet accept DEVICE --as NAME`) it says nothing else: its records would be another board's.
"""

import hashlib
import logging
from collections.abc import Callable
from pathlib import Path

from edgemeter.agent.delivery.broker_address import BrokerAddress, parse
from edgemeter.agent.delivery.credentials import TlsFiles
from edgemeter.agent.delivery.topics import Kind, Topic
from edgemeter.agent.errors import ConfigError, TransientError
from edgemeter.agent.identity import board_serial, joining, own, own_key
from edgemeter.agent.identity.conversation import Conversation
from edgemeter.agent.identity.messages import Answer, Ask
from edgemeter.agent.identity.own import Identity, IdentityFiles
from edgemeter.agent.machine import board
from edgemeter.agent.machine.machine import THIS_MACHINE, Machine

logger = logging.getLogger(__name__)

PATIENCE_S = 600.0
_TRIES = 3
_KINDS: tuple[Kind, Kind] = ("renew", "certificate")


def settle(
    home: Path, machine: Machine = THIS_MACHINE, alive: Callable[[], object] = lambda: None, patience_s: float | None = None
) -> bool:
    """Return when the identity in `home` is this board's, or there is none; whether it changed. `alive` is called while it waits.

    Raises:
        ConfigError: the fleet refuses this board.
        TransientError: nobody has accepted it within `patience_s`; without that it waits for ever.
        UnavailableError: a file cannot be written, or there is no openssl.
    """
    joining.settle(IdentityFiles(home))
    if not own.is_other_board(home, machine):
        return False
    identity = own.read(home)
    if identity is None:
        return False
    logger.warning(
        "this card belongs to device %r on the board with serial %s, and this is another board: it asks for a name of its own",
        identity.device,
        identity.serial,
    )
    while True:
        try:
            found = _ask(home, identity, machine, alive, patience_s or PATIENCE_S)
        except TransientError as error:
            if patience_s is not None:
                raise
            logger.warning("%s", error)
        else:
            logger.info("this board is device %r now", found.device)
            return True


def _ask(home: Path, identity: Identity, machine: Machine, alive: Callable[[], object], patience_s: float) -> Identity:
    files = IdentityFiles(home)
    serial = board_serial.read(machine)
    ask_on, hear_on = (str(Topic(identity.fleet, identity.device, kind)) for kind in _KINDS)
    # An id of its own: the board that the card was copied from stays connected.
    client_id = f"{identity.device}~{hashlib.sha256(serial.serial.encode()).hexdigest()[:12]}"
    with Conversation(_address(identity, files), client_id, ask_on, hear_on, alive) as talk:
        for _ in range(_TRIES):
            if not files.next_key.exists():
                own_key.make(files.next_key)
            question = Ask(
                csr=own_key.request(files.next_key, identity.device),
                serial=serial.serial,
                serial_source=serial.source,
                board=(board.model(machine) or "")[:200] or None,
            )
            answer: Answer = talk.ask(question, patience_s)
            if answer.state == "accepted":
                return joining.take(files, answer, serial, identity.broker, None)
            if answer.state != "again":
                break
            files.next_key.unlink()
    message = f"the fleet refuses this board, whose card belongs to {identity.device!r}: {answer.reason}"
    raise ConfigError(message)


def _address(identity: Identity, files: IdentityFiles) -> BrokerAddress:
    return parse(identity.broker, tls=TlsFiles(files.ca, files.certificate, files.key), environ={})
