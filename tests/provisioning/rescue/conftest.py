"""What the tests of switches share: switches that answer as their makers document, on real servers of this machine."""

import json
import re
from urllib.parse import parse_qs, urlsplit

import pytest

from edgemeter.provisioning.inventory import fleet_file
from edgemeter.provisioning.inventory.fleet_folder import FleetFolder
from edgemeter.provisioning.rescue import wiring
from tests.fixtures.http_meter import PlayedMeter, playing


def shelly_gen2(path, state):
    """Answer as the Shelly Gen2 Device API documents for a Plus Plug S."""
    parts = urlsplit(path)
    query = {name: values[0] for name, values in parse_qs(parts.query).items()}
    if parts.path == "/shelly":
        return 200, {"name": None, "id": "shellyplusplugs-1", "mac": "0", "model": "SNPL-00112EU", "gen": 2, "auth_en": False}
    if query.get("id") != "0":
        return 500, {"code": -105, "message": f"Argument 'id', value {query.get('id')} not found!"}
    if parts.path == "/rpc/Switch.Set":
        was, state["on"] = state["on"], query["on"] == "true"
        if "toggle_after" in query:
            state["timer"] = (float(query["toggle_after"]), not state["on"])
        return 200, {"was_on": was}
    if parts.path == "/rpc/Switch.GetStatus":
        return 200, {"id": 0, "source": "init", "output": state["on"], "apower": 4.2, "voltage": 231.0}
    if parts.path == "/rpc/Switch.GetConfig":
        return 200, {"id": 0, "name": None, "initial_state": state.get("initial", "restore_last"), "auto_on": False}
    return 404, {"code": 404, "message": "No handler for this"}


def shelly_gen1(path, state):
    """Answer as the Shelly Gen1 API documents for a plug."""
    parts = urlsplit(path)
    query = {name: values[0] for name, values in parse_qs(parts.query).items()}
    if parts.path == "/shelly":
        return 200, {"type": "SHPLG-S", "mac": "0", "auth": False, "fw": "20230913-113421/v1.14.0"}
    if parts.path == "/relay/0":
        if "turn" in query:
            state["on"] = query["turn"] == "on"
            if "timer" in query:
                state["timer"] = (float(query["timer"]), not state["on"])
        return 200, {"ison": state["on"], "has_timer": "timer" in state, "source": "http"}
    if parts.path == "/settings/relay/0":
        return 200, {"ison": state["on"], "default_state": state.get("initial", "last")}
    return 404, {}


def tasmota(path, state):
    """Answer as Tasmota documents for a plug with one relay."""
    command = parse_qs(urlsplit(path).query)["cmnd"][0]
    if match := re.fullmatch(r"Backlog Power1? Off; Delay (\d+); Power1? On", command):
        state["on"], state["timer"] = False, (int(match[1]) / 10, True)
        return 200, {}
    if match := re.fullmatch(r"Power1?(?: (On|Off))?", command):
        if match[1]:
            state["on"] = match[1] == "On"
        return 200, {"POWER": "ON" if state["on"] else "OFF"}
    if command == "PowerOnState":
        return 200, {"PowerOnState": state.get("initial", 3)}
    return 200, {"Command": "Unknown"}


ANSWERS = {"shelly gen2": shelly_gen2, "shelly gen1": shelly_gen1, "tasmota": tasmota}


class Played:
    """One switch that is there: its state, what it was asked, and a clock that the test lets run."""

    def __init__(self, kind, meter, state):
        self.scheme = kind.split()[0]
        self.meter = meter
        self.state = state

    def sleep(self, seconds):
        """Let time pass: a timer of the switch that runs out switches."""
        timer = self.state.get("timer")
        if timer and timer[0] <= seconds:
            self.state["on"] = timer[1]
            del self.state["timer"]


@pytest.fixture(params=ANSWERS)
def played(request):
    """Serve each kind of switch, on."""
    yield from serve(request.param)


def serve(kind, **how):
    """Serve one kind of switch, on."""
    state = {"on": True}

    def answer(path):
        status, document = ANSWERS[kind](path, state)
        return status, json.dumps(document).encode()

    with playing(PlayedMeter(answer, **how)) as meter:
        yield Played(kind, meter, state)


@pytest.fixture
def wired(tmp_path):
    """Return a function that gives the switch written down, of a device, in a fleet.toml with more text."""

    def make(text, further_text="", device="pi-1"):
        (tmp_path / "fleet.toml").write_text(f'fleet = "lab"\n[device.{device}]\nswitch = "{text}"\n{further_text}')
        return wiring.wiring_of(device, fleet_file.read(tmp_path / "fleet.toml"), FleetFolder(tmp_path))

    return make
