"""Discovery messages that describe each device to Home Assistant (2024.11 or newer), and the states that its entities show.

A device has one retained discovery message. Its entities are whether it is online, and for every case that it measured the median latency,
the energy per inference and the verdict of the newest run. The numbers of an invalid run are withheld.
Source: https://www.home-assistant.io/integrations/mqtt/#discovery-messages; classes and units:
https://developers.home-assistant.io/docs/core/entity/sensor.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timezone
from typing import Any, get_args

import msgspec

from edgemeter.agent.contract.figures import Figure, in_view
from edgemeter.agent.contract.messages import Topic
from edgemeter.agent.contract.record_conditions import VerdictState
from edgemeter.agent.ledger.presence import DevicePresence
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
