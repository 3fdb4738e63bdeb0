"""Receipted records are requested again from the devices that still have them.

This is needed after a ledger was lost or restored.

The request is retained next to the receipts, where a collector may write anyway: an offline device
answers when it connects.
"""

import secrets
import threading
import time
from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path

from edgemeter.agent.base.broker_address import BrokerAddress
from edgemeter.agent.base.errors import ConfigError, UnavailableError
from edgemeter.agent.base.mqtt_session import Message, MqttSession, SessionEvents, SessionProfile
from edgemeter.agent.contract import messages
from edgemeter.agent.contract.messages import AgainRequest, Topic
from edgemeter.collector.ledgers.place import LedgerPlace, open_ledger

# The time for which a device keeps receipted records (`outbox_file.KEPT_DAYS`).
EXPIRES_S = 14 * 24 * 3600
# Retained messages come at once; this long after the last of them all have come.
QUIET_S = 1.0
LONGEST_S = 15.0
FLUSH_S = 15.0


@dataclass(frozen=True, slots=True)
class AskedDevice:
    """A device that received the request.

    `state` is as known by the broker or the ledger, None if neither knows it.
    """

    fleet: str
    device: str
    state: str | None = None


def request_again(
    address: BrokerAddress, ledger: LedgerPlace, devices: Collection[str], since_ns: int
) -> list[AskedDevice]:
    """Ask `devices` for the records they kept since then; return those asked.

    An empty `devices` is all that the broker and the ledger know.

    Raises:
        ConfigError: a device is unknown, or there is none.
        UnavailableError: the broker does not answer, or refuses us.
    """
    listener = _Listener()
    session = MqttSession(
        address, SessionProfile(f"edgemeter-request-{secrets.token_hex(4)}"), listener
    )
    listener.session = session
    session.connect()
    try:
        by_name = {
            (device.fleet, device.device): device
            for device in (*_of_ledger(ledger), *listener.wait())
        }
        asked_devices = [
            device
            for _, device in sorted(by_name.items())
            if not devices or device.device in devices
        ]
        if unknown := sorted(set(devices) - {device.device for device in asked_devices}):
            raise ConfigError(
                f"neither the broker nor the ledger knows {', '.join(map(repr, unknown))}: see "
                "`edgemeter collector devices`"
            )
        if not asked_devices:
            raise ConfigError(
                "neither the broker nor the ledger knows any device: check --broker and --ledger"
            )
        numbers = []
        for device in asked_devices:
            request = messages.encode_message(
                AgainRequest(again=secrets.token_hex(16), since_ns=since_ns)
            )
            topic = str(Topic(device.fleet, device.device, "receipt"))
            numbers.append(session.publish(topic, request, lasting="retained", expires_s=EXPIRES_S))
        session.flush(FLUSH_S)
        if any(session.is_on_its_way(number) for number in numbers):
            raise UnavailableError(
                f"the broker at {address} did not confirm every request in {FLUSH_S:.0f} s: "
                "repeat the command"
            )
    finally:
        session.close()
    if listener.refusal is not None:
        raise UnavailableError(
            f"the broker at {address} refuses {listener.refusal}: use the collector's own user "
            "or certificate"
        )
    return asked_devices


def _of_ledger(ledger: LedgerPlace) -> list[AskedDevice]:
    if isinstance(ledger, Path) and not ledger.exists():
        return []
    with open_ledger(ledger, "read") as opened:
        present = {(device.fleet, device.device): device.state for device in opened.devices()}
        names = {(session.fleet, session.device) for session in opened.sessions()} | present.keys()
    return [
        AskedDevice(fleet, device, present.get((fleet, device)))
        for fleet, device in names
        if present.get((fleet, device)) != "revoked"
    ]


class _Listener(SessionEvents):
    def __init__(self) -> None:
        self.session: MqttSession | None = None
        self.refusal: str | None = None
        self._found: dict[tuple[str, str], AskedDevice] = {}
        self._lock = threading.Lock()
        self._last_s = time.monotonic()

    def wait(self) -> list[AskedDevice]:
        """Return the devices once no more are reported."""
        self._last_s = begun_s = time.monotonic()
        while (now_s := time.monotonic()) - self._last_s < QUIET_S and now_s - begun_s < LONGEST_S:
            time.sleep(0.05)
        with self._lock:
            return [device for device in self._found.values() if device.state != "revoked"]

    def connected(self) -> None:
        if self.session is not None:
            self.session.subscribe([messages.topics_of("birth"), messages.topics_of("state")])

    def received(self, message: Message) -> None:
        try:
            topic = messages.parse_topic(message.topic)
            state = messages.decode_state(message.payload).state if topic.kind == "state" else None
        except ConfigError:
            return
        if topic.kind not in ("birth", "state"):
            return
        with self._lock:
            self._last_s = time.monotonic()
            device = self._found.get((topic.fleet, topic.device)) or AskedDevice(
                topic.fleet, topic.device
            )
            self._found[topic.fleet, topic.device] = replace(device, state=state or device.state)

    def answered(self, refusal: str | None) -> None:
        self.refusal = self.refusal or refusal
