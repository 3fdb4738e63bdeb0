import json

import jsonschema
import pytest

from edgemeter.agent.contract.messages import Birth
from edgemeter.agent.contract.record_conditions import Verdict
from edgemeter.agent.ledger.presence import DevicePresence
from edgemeter.collector.home_assistant.discovery import discovery_topic, home_messages, state_topic
from edgemeter.collector.runs.cases import series_of
from edgemeter.collector.runs.run_figures import figures_of
from tests.fixtures.record_factory import make_record

# Source: Home Assistant core, homeassistant/components/mqtt/schemas.py (DEVICE_DISCOVERY_SCHEMA) and sensor.py, binary_sensor.py;
# homeassistant/components/sensor/const.py (DEVICE_CLASS_UNITS, DEVICE_CLASS_STATE_CLASSES), as of 2025.
_TOPIC = {"type": "string", "minLength": 1, "pattern": "^[^+#\\x00]+$"}
_SHARED = {
    "platform": {"type": "string"},
    "unique_id": {"type": "string", "minLength": 1},
    "name": {"type": "string"},
    "state_topic": _TOPIC,
    "json_attributes_topic": _TOPIC,
    "value_template": {"type": "string"},
    "entity_category": {"enum": ["config", "diagnostic"]},
    "icon": {"type": "string", "pattern": "^mdi:"},
}
_SENSOR = {
    **_SHARED,
    "platform": {"const": "sensor"},
    "unit_of_measurement": {"type": "string"},
    "state_class": {"enum": ["measurement", "total", "total_increasing", "measurement_angle"]},
    "device_class": {"enum": ["duration", "energy", "enum"]},
    "options": {"type": "array", "items": {"type": "string"}, "minItems": 1},
    "suggested_display_precision": {"type": "integer", "minimum": 0},
}
SCHEMA = {
    "type": "object",
    "required": ["device", "origin", "components"],
    "additionalProperties": False,
    "properties": {
        "device": {
            "type": "object",
            "required": ["identifiers"],
            "additionalProperties": False,
            "properties": {
                "identifiers": {"type": "array", "items": {"type": "string"}, "minItems": 1},
                **{name: {"type": "string"} for name in ("name", "manufacturer", "model", "sw_version", "hw_version")},
            },
        },
        "origin": {
            "type": "object",
            "required": ["name"],
            "additionalProperties": False,
            "properties": {"name": {"type": "string"}, "sw_version": {"type": "string"}},
        },
        "components": {
            "type": "object",
            "minProperties": 1,
            "additionalProperties": {
                # Entities of a device message need a unique id.
                "required": ["platform", "unique_id", "state_topic"],
                "oneOf": [
                    {
                        "properties": {**_SHARED, "platform": {"const": "binary_sensor"}, "device_class": {"const": "connectivity"}},
                        "additionalProperties": False,
                    },
                    {
                        "properties": _SENSOR,
                        "additionalProperties": False,
                        "allOf": [
                            {
                                "if": {"properties": {"device_class": {"const": "duration"}}, "required": ["device_class"]},
                                "then": {"properties": {"unit_of_measurement": {"enum": ["d", "h", "min", "s", "ms", "µs"]}}},
                            },
                            {
                                "if": {"properties": {"device_class": {"const": "energy"}}, "required": ["device_class"]},
                                "then": {"properties": {"state_class": {"enum": ["total", "total_increasing"]}}},
                            },
                            {
                                "if": {"properties": {"device_class": {"const": "enum"}}, "required": ["device_class"]},
                                "then": {
                                    "required": ["options"],
                                    "not": {"anyOf": [{"required": ["state_class"]}, {"required": ["unit_of_measurement"]}]},
                                },
                            },
                        ],
                    },
                ],
            },
        },
    },
}


def present(device="pi-1", state="online", **birth):
    """Return a device as it reported itself."""
    fields = {"device": device, "fleet": "lab", "session": 1, "agent": "0.1.0", "board": "Pi 5", "os": None, "arch": "x", "runtimes": {}}
    return DevicePresence("lab", device, state, 1, Birth(**(fields | birth)), 5)


def newest(**changes):
    """Return a run as the index has it: its series and its figures."""
    record = make_record(**({"fleet": "lab", "device": "pi-1"} | changes))
    return series_of(record), figures_of(record)


def test_the_messages_are_what_home_assistant_documents():
    """Device, origin and components; classes, units and state classes that go together; topics without wildcards."""
    messages = home_messages([newest(), newest(precision="int8")], [present(), present("pi 2")], "1.0")
    topics = [discovery_topic("lab", "pi-1"), discovery_topic("lab", "pi 2")]
    for topic in topics:
        prefix, kind, node, end = topic.split("/")
        assert (prefix, kind, end) == ("homeassistant", "device", "config")
        assert node.replace("_", "").isalnum()
        jsonschema.validate(json.loads(messages[topic]), SCHEMA)
    device, other = (json.loads(messages[topic]) for topic in topics)
    assert device["device"]["model"] == "Pi 5"
    assert len(device["components"]) == 1 + 2 * 3
    assert list(other["components"]) == ["online"]
    ids = [component["unique_id"] for message in (device, other) for component in message["components"].values()]
    assert len(set(ids)) == len(ids)


def test_every_entity_reads_a_state_that_is_there():
    """Each template names a key of the message at its topic; whether it is online comes from the device's own."""
    key, run = newest()
    messages = home_messages([(key, run)], [present()], "1.0")
    state = json.loads(messages[state_topic(key)])
    assert state["latency_ms"] == run.value("p50_ms")
    assert state["energy_mj"] == run.value("gross_mj")
    for component in json.loads(messages[discovery_topic("lab", "pi-1")])["components"].values():
        if component["platform"] == "sensor":
            assert component["state_topic"] == state_topic(key)
            assert component["value_template"].removeprefix("{{ value_json.").removesuffix(" }}") in state
        else:
            assert component["state_topic"] == "edgemeter/v1/lab/pi-1/state"


def test_the_numbers_of_an_invalid_run_are_withheld():
    """Its verdict is shown, and nothing that anybody could take for a measurement."""
    key, run = newest(verdict=Verdict(state="invalid", reasons=("too hot",)))
    state = json.loads(home_messages([(key, run)], [], "1.0")[state_topic(key)])
    assert (state["verdict"], state["latency_ms"], state["energy_mj"]) == ("invalid", None, None)


@pytest.mark.parametrize("birth", [True, False])
def test_a_retired_device_is_removed_with_its_states(birth):
    """Empty retained messages, which makes Home Assistant forget."""
    presence = present(state="revoked") if birth else DevicePresence("lab", "pi-1", "revoked", 0, None, 5)
    messages = home_messages([newest()], [presence], "1.0")
    assert len(messages) == 2
    assert set(messages.values()) == {b""}


def test_of_a_device_with_very_many_cases_the_newest_are_shown():
    """A discovery message stays of a size that brokers and people bear."""
    runs = [newest(case=f"{number}", model=make_record().model, batch=number, started_at_ns=number * 10**9) for number in range(1, 151)]
    message = json.loads(home_messages(runs, [], "1.0")[discovery_topic("lab", "pi-1")])
    names = " ".join(component["name"] for component in message["components"].values())
    assert len(message["components"]) == 1 + 3 * 100
    assert "batch 150," in names
    assert "batch 50," not in names
