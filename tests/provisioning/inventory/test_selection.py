"""The language that picks devices."""

import random

import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.provisioning.inventory import selection
from edgemeter.provisioning.inventory.fleet_folder import FleetFolder
from edgemeter.provisioning.registry import devices
from edgemeter.provisioning.registry.devices import Device
from edgemeter.provisioning.registry.registry import Registry
from tests.fixtures.rows import table_row


def device(name, board=None, tags=(), **fields):
    """Return a device of the fleet `lab`."""
    defaults = {"fleet": "lab", "serial": None, "trust": "accepted", "enrolled_ns": None, "changed_ns": 0}
    return Device(device=name, board=board, tags=tuple(tags), **(defaults | fields))


FLEET = [
    device("pi5-01", "pi5", ["coral"]),
    device("pi5-02", "pi5"),
    device("pi4-01", "pi4", ["coral"], trust="revoked"),
    device("orin 1", "orin-nano", fleet="hall", serial="99"),
]


def test_a_selection_picks_these():
    """By key, tag, name, pattern, and the three ways to join them."""
    for text, expected in (
        ("board=pi5 & coral", ["pi5-01"]),
        ("board=pi5 | coral", ["pi5-01", "pi5-02", "pi4-01"]),
        ("coral & !trust=revoked", ["pi5-01"]),
        ("!(coral|board=orin*)", ["pi5-02"]),
        ("device=pi5-*", ["pi5-01", "pi5-02"]),
        ("pi5-02", ["pi5-02"]),
        ("pi?-01", ["pi5-01", "pi4-01"]),
        ('device="orin 1"', ["orin 1"]),
        ("device='orin 1' | tag=coral", ["pi5-01", "pi4-01", "orin 1"]),
        ("fleet=hall", ["orin 1"]),
        ("serial=9*", ["orin 1"]),
        ("all", ["pi5-01", "pi5-02", "pi4-01", "orin 1"]),
        ("*", ["pi5-01", "pi5-02", "pi4-01", "orin 1"]),
        ("!!coral", ["pi5-01", "pi4-01"]),
        # & binds closer than |.
        ("pi5-02 | coral & board=pi4", ["pi5-02", "pi4-01"]),
        ("(pi5-02 | coral) & board=pi4", ["pi4-01"]),
        ("Coral", []),
    ):
        with table_row(text):
            fits = selection.parse(text).fits
            assert [candidate.device for candidate in FLEET if fits(candidate)] == expected


def test_a_wrong_selection_points_at_the_place():
    """One line with the column, and with what was expected there."""
    for text, where in (
        ("", "its end: a condition"),
        ("   ", "its end: a condition"),
        ("board=pi5 & & coral", r"column 13 \('&'\): a condition"),
        ("board=pi5 coral", r"column 11 \('coral'\): an & or \|"),
        ("boards=pi5", r"column 1 \('boards'\): it is not a key"),
        ("a | (b & c", r"its end: a \) is missing"),
        ("a)", r"column 2 \('\)'\)"),
        ("board=", "its end: a pattern for board"),
        ("board=&", r"column 7 \('&'\): a pattern"),
        ('device="pi', r"column 8 \('\"pi'\): a quote"),
        ("=pi5", r"column 1 \('='\)"),
        ("!" * 80 + "a", "nested too deeply"),
        ("(" * 5000, "nested too deeply"),
    ):
        with table_row(text):
            with pytest.raises(ConfigError, match=where) as error:
                selection.parse(text)
            assert "\n" not in str(error.value)


def test_every_random_expression_means_what_python_means():
    """Against Python's own `and`, `or` and `not`, over expressions drawn at random."""
    draw = random.Random(9)  # noqa: S311 - a test
    words = ["coral", "pi5-01", "pi5-02"]

    def write(depth):
        kind = draw.choice(["word", "and", "or", "not"]) if depth else "word"
        if kind == "word":
            word = draw.choice(words)
            return word, f"{word!r} in has"
        if kind == "not":
            selection_text, python_text = write(depth - 1)
            return f"!({selection_text})", f"(not {python_text})"
        (selection_text, python_text), (selection_2, python_2) = write(depth - 1), write(depth - 1)
        mark = "&" if kind == "and" else "|"
        return f"({selection_text}){draw.choice(['', ' '])}{mark} ({selection_2})", f"({python_text} {kind} {python_2})"

    for _ in range(300):
        selection_text, python_text = write(4)
        fits = selection.parse(selection_text).fits
        for candidate in FLEET:
            assert fits(candidate) == eval(python_text, {"has": {*candidate.tags, candidate.device}}), selection_text  # noqa: S307 - written above


def test_the_fleet_file_overrides_what_people_state(tmp_path):
    """Tags add up, the trust state is the registry's, a device of the file alone is expected; nothing is written."""
    folder = FleetFolder(tmp_path)
    folder.fleet_file.write_text('fleet = "lab"\n[device.pi5-01]\nboard = "pi5-8gb"\ntags = ["rack"]\n[device.new]\nserial = "7"\n')
    registry = Registry(folder.registry)
    with registry.transaction() as connection:
        devices.put(connection, FLEET[0])
    pi, new = sorted(selection.read_devices(folder, registry), key=lambda candidate: candidate.device != "pi5-01")
    merged = {"board": "pi5-8gb", "tags": ("rack", "coral"), "trust": "accepted"}
    assert {name: getattr(pi, name) for name in merged} == merged
    of_the_file = {"device": "new", "fleet": "lab", "serial": "7", "trust": "expected"}
    assert {name: getattr(new, name) for name in of_the_file} == of_the_file
    assert devices.read(registry) == [FLEET[0]]
    assert selection.select_devices(folder, registry, "rack") == [pi]
    with pytest.raises(ConfigError, match=r"no device matches 'board=pi6'.*boards pi5-8gb; tags coral, rack"):
        selection.select_devices(folder, registry, "board=pi6")
    registry.close()
