"""The publisher: keeps Home Assistant's retained messages at the broker equal to what the ledger holds, in its own thread.

A device (2024.11 or newer) has one retained discovery message. Its entities are whether it is online, and for every case that it measured
the median latency, the energy per inference and the verdict of the newest run. The numbers of an invalid run are withheld.
Source: https://www.home-assistant.io/integrations/mqtt/#discovery-messages; classes and units:
https://developers.home-assistant.io/docs/core/entity/sensor.
"""

import hashlib
import logging
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from datetime import datetime, timezone
from typing import Any, get_args

import msgspec

from edgemeter.agent.base.broker_address import BrokerAddress
from edgemeter.agent.base.errors import EdgemeterError
from edgemeter.agent.base.mqtt_session import MqttSession, SessionEvents, SessionProfile
from edgemeter.agent.contract.figures import Figure, in_view
from edgemeter.agent.contract.messages import Topic
from edgemeter.agent.contract.record_conditions import VerdictState
from edgemeter.agent.ledger.presence import DevicePresence
from edgemeter.collector.index.history import LedgerHistory
from edgemeter.collector.ledgers.place import LedgerPlace, open_ledger
from edgemeter.collector.runs.cases import SeriesKey, grouped
from edgemeter.collector.runs.run_figures import RunFigures
from edgemeter.collector.trend.metrics import followed_value

DISCOVERY_PREFIX = "homeassistant"
STATE_ROOT = "edgemeter/home-assistant"

# Of a device with more cases only those measured last: three entities each.
MOST_CASES = 100

FIGURES = in_view("home")


def _entity(entry: Figure) -> dict[str, Any]:
    # `energy` is for meters that count up (state class total): an energy per inference is none.
    appearance = {"device_class": "duration"} if entry.unit == "ms" else {"icon": "mdi:lightning-bolt"} if entry.unit == "mJ" else {}
    return {
        "name": entry.title[:1].upper() + entry.title[1:],
        **appearance,
        "state_class": "measurement",
        **({"unit_of_measurement": entry.unit} if entry.unit else {}),
        "suggested_display_precision": 2,
        "value_template": f"{{{{ value_json.{_state_name(entry)} }}}}",
    }


def _state_name(entry: Figure) -> str:
    """Return the name of a figure in the state of a case: `latency_ms`."""
    return "_".join(filter(None, (entry.choice.replace("-", "_"), entry.unit.lower())))


_ENTITIES: Mapping[str, Mapping[str, Any]] = {
    **{entry.choice: _entity(entry) for entry in FIGURES},
    "verdict": {
        "name": "Verdict",
        "device_class": "enum",
        "options": list(get_args(VerdictState)),
        "value_template": "{{ value_json.verdict }}",
    },
}


def home_messages(newest: Iterable[tuple[SeriesKey, RunFigures]], present: Iterable[DevicePresence], agent: str) -> dict[str, bytes]:
    """Return the retained messages that should be at the broker, by topic; an empty one removes what was there.

    `newest` is the newest run of every series; `agent` is our version. A device whose state is `revoked` is removed.
    """
    devices = {(device.fleet, device.device): device for device in present}
    cases = grouped(((key.fleet, key.device), (key, run)) for key, run in newest)
    messages: dict[str, bytes] = {}
    for fleet, device in dict.fromkeys((*devices, *cases)):
        presence = devices.get((fleet, device))
        newest_cases = sorted(cases.get((fleet, device), []), key=lambda case: case[1].at_ns)[-MOST_CASES:]
        is_retired = presence is not None and presence.state == "revoked"
        discovery = b"" if is_retired else msgspec.json.encode(_discovery(fleet, device, presence, [key for key, _ in newest_cases], agent))
        messages[discovery_topic(fleet, device)] = discovery
        for key, run in newest_cases:
            messages[state_topic(key)] = b"" if is_retired else msgspec.json.encode(_state(run))
    return messages


def discovery_topic(fleet: str, device: str) -> str:
    """Return the topic of a device's discovery message."""
    return f"{DISCOVERY_PREFIX}/device/{_node(fleet, device)}/config"


def state_topic(key: SeriesKey) -> str:
    """Return the topic with the newest figures of a case of a device."""
    return f"{STATE_ROOT}/{key.fleet}/{key.device}/{_case_id(key)}"


def _node(fleet: str, device: str) -> str:
    # Names may hold characters that a discovery topic may not; a device's name is free of '/'.
    return f"edgemeter_{hashlib.sha256(f'{fleet}/{device}'.encode()).hexdigest()[:16]}"


def _case_id(key: SeriesKey) -> str:
    return hashlib.sha256(msgspec.json.encode(key)).hexdigest()[:16]


def _discovery(fleet: str, device: str, presence: DevicePresence | None, cases: Sequence[SeriesKey], agent: str) -> dict[str, Any]:
    node = _node(fleet, device)
    components: dict[str, dict[str, Any]] = {
        "online": {
            "platform": "binary_sensor",
            "unique_id": f"{node}_online",
            "name": "Online",
            "device_class": "connectivity",
            "entity_category": "diagnostic",
            # The device's own message, which its broker replaces when it is lost: true without a collector too.
            "state_topic": str(Topic(fleet, device, "state")),
            "value_template": "{{ 'ON' if value_json.state == 'online' else 'OFF' }}",
        }
    }
    for key in cases:
        for name, entity in _ENTITIES.items():
            component = f"{_case_id(key)}_{name}"
            components[component] = {
                **entity,
                "platform": "sensor",
                "unique_id": f"{node}_{component}",
                "name": f"{entity['name']}: {key.case()}",
                "state_topic": state_topic(key),
                "json_attributes_topic": state_topic(key),
            }
    return {
        "device": _device(fleet, device, presence, node, cases),
        "origin": {"name": "edgemeter", "sw_version": agent},
        "components": components,
    }


def _device(fleet: str, device: str, presence: DevicePresence | None, node: str, cases: Sequence[SeriesKey]) -> dict[str, Any]:
    birth = presence.birth if presence is not None else None
    board = birth.board if birth is not None else cases[-1].board if cases else None
    facts = {"model": board, "sw_version": birth.agent if birth is not None else None}
    named = {"identifiers": [node], "name": device, "manufacturer": f"edgemeter, fleet {fleet}"}
    return named | {name: value for name, value in facts.items() if value}


def _state(run: RunFigures) -> dict[str, Any]:
    holds = run.verdict != "invalid"
    return {
        **{_state_name(entry): followed_value(entry, run) if holds else None for entry in FIGURES},
        "energy_scope": run.energy_kind if holds and run.has_own_energy else None,
        "verdict": run.verdict,
        "measured_at": datetime.fromtimestamp(run.at_ns // 1_000_000_000, timezone.utc).isoformat(),
        "run": run.id,
    }


logger = logging.getLogger(__name__)

POLL_S = 2.0
ROOM_POLL_S = 0.02
GOODBYE_S = 2.0


class HomePublisher(SessionEvents):
    """Publishes the devices and newest runs of the ledger at `ledger_place`; `start` once, `stop` once or more."""

    def __init__(self, address: BrokerAddress, ledger_place: LedgerPlace, agent: str, poll_s: float = POLL_S) -> None:
        self._address = address
        self._place = ledger_place
        self._agent = agent
        self._poll_s = poll_s
        self._session: MqttSession | None = None
        self._sent: dict[str, bytes] = {}
        self._seen: object = None
        self._is_new_connection = threading.Event()
        self._stopping = threading.Event()
        self._problem: str | None = None
        self._thread = threading.Thread(target=self._run, name="edgemeter-home-assistant", daemon=True)

    def start(self) -> None:
        """Return when the broker has accepted us.

        Raises:
            ConfigError: the broker refuses the credentials, or the file is no ledger.
            UnavailableError: no broker answers.
        """
        with open_ledger(self._place, "read") as ledger:
            profile = SessionProfile(f"collector-{ledger.identity()}-home-assistant")
        self._session = MqttSession(self._address, profile, self)
        self._session.connect()
        self._thread.start()

    def stop(self) -> None:
        """End the session and the thread; what was published stays. May be called twice."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()
        if self._session is not None:
            self._session.flush(GOODBYE_S)
            self._session.close()

    def connected(self) -> None:
        """Session event: the broker may have lost what it retained."""
        self._is_new_connection.set()

    def disconnected(self, reason: str) -> None:
        """Session event: it comes back by itself."""
        logger.debug("Home Assistant's messages wait for the broker: %s", reason)

    def answered(self, refusal: str | None) -> None:
        """Session event: the broker's answer."""
        if refusal is not None:
            remedy = "allow the collector to write homeassistant/device/# and edgemeter/home-assistant/#"
            self._report(f"the broker refuses it ({refusal}): {remedy}")

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._publish_changes()
            except EdgemeterError as error:
                self._report(str(error))
            self._stopping.wait(self._poll_s)

    def _publish_changes(self) -> None:
        session = self._session
        if session is None or not session.is_connected():
            return
        if self._is_new_connection.is_set():
            self._is_new_connection.clear()
            self._sent.clear()
            self._seen = None
        with open_ledger(self._place, "read") as ledger:
            now = ledger.last_row(), ledger.devices()
        if now == self._seen:
            return
        with closing(LedgerHistory(self._place)) as history:
            messages = home_messages(history.newest_runs(), now[1], self._agent)
        if all(self._send(session, topic, payload) for topic, payload in messages.items() if self._sent.get(topic) != payload):
            self._seen = now

    def _send(self, session: MqttSession, topic: str, payload: bytes) -> bool:
        while not session.room():
            if self._stopping.is_set() or not session.is_connected():
                return False
            time.sleep(ROOM_POLL_S)
        session.publish(topic, payload, lasting="retained")
        self._sent[topic] = payload
        return True

    def _report(self, problem: str) -> None:
        # Logged once, not at every message.
        if problem != self._problem:
            logger.warning("Home Assistant is not told: %s", problem)
        self._problem = problem
