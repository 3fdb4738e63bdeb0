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
    defaults = {"fleet": "lab", "serial": None, "trust": "accepted", "changed_ns": 0}
    return Device(device=name, board=board, tags=tuple(tags), **(defaults | fields))


FLEET = [
    device("pi5-01", "pi5", ["coral"]),
    device("pi5-02", "pi5"),
    device("pi4-01", "pi4", ["coral"], trust="revoked"),
    device("orin 1", "orin-nano", fleet="hall", serial="99"),
]


def test_a_selection_picks_these():
    """Devices are selected by key, tag, name or pattern, and by the three ways to join these."""
    for text, expected in (
        ("board=pi5 & coral", ["pi5-01"]),
        ("board=pi5 | coral", ["pi5-01", "pi5-02", "pi4-01"]),
        ("coral & !trust=revoked", ["pi5-01"]),
        ("!coral & !board=orin*", ["pi5-02"]),
        ("device=pi5-*", ["pi5-01", "pi5-02"]),
        ("pi5-02", ["pi5-02"]),
        ("pi?-01", ["pi5-01", "pi4-01"]),
        ("device=orin 1", ["orin 1"]),
        ("orin 1 | tag=coral", ["pi5-01", "pi4-01", "orin 1"]),
        ("fleet=hall", ["orin 1"]),
        ("all", ["pi5-01", "pi5-02", "pi4-01", "orin 1"]),
        ("*", ["pi5-01", "pi5-02", "pi4-01", "orin 1"]),
        ("!all", []),
        ("!!coral", ["pi5-01", "pi4-01"]),
        # & binds closer than |.
        ("pi5-02 | coral & board=pi4", ["pi5-02", "pi4-01"]),
        ("Coral", []),
    ):
        with table_row(text):
            fits = selection.parse(text)
            assert [candidate.device for candidate in FLEET if fits(candidate)] == expected


def test_a_wrong_selection_names_the_condition():
    """The error is one line that names the wrong condition and how to write it."""
    for text, problem in (
        ("", "a condition is missing"),
        ("   ", "a condition is missing"),
        ("board=pi5 & & coral", "a condition is missing"),
        ("coral |", "a condition is missing"),
        ("boards=pi5", "'boards' is not a key"),
        ("a | (b & c)", r"'\(b' is not a condition"),
        ("board=", "'board=' is not a condition"),
        ("board=pi5=4", "'board=pi5=4' is not a condition"),
        ("device='pi'", "is not a condition"),
        ("=pi5", "'' is not a key"),
        ("!", "'!' is not a condition"),
        ("a!b", "'a!b' is not a condition"),
    ):
        with table_row(text):
            with pytest.raises(ConfigError, match=problem) as error:
                selection.parse(text)
            assert "\n" not in str(error.value)


def test_every_random_expression_means_what_python_means():
    """Random expressions select as Python's own `and`, `or` and `not` do."""
    draw = random.Random(9)  # noqa: S311 - a test
    for _ in range(300):
        words = [
            (draw.choice(["", "!"]), draw.choice(["coral", "pi5-01", "pi5-02"]))
            for _ in range(draw.randrange(1, 6))
        ]
        marks = [draw.choice(["&", "|"]) for _ in words[1:]] + [""]
        selection_text = "".join(
            f"{sign}{word} {mark}" for (sign, word), mark in zip(words, marks, strict=True)
        )
        python = {"!": "not ", "": "", "&": "and ", "|": "or "}
        python_text = "".join(
            f"{python[sign]}{word!r} in has {python[mark]}"
            for (sign, word), mark in zip(words, marks, strict=True)
        )
        fits = selection.parse(selection_text)
        for candidate in FLEET:
            assert fits(candidate) == eval(  # noqa: S307 - written above
                python_text, {"has": {*candidate.tags, candidate.device}}
            ), selection_text


def test_the_fleet_file_overrides_what_people_state(tmp_path):
    """Statements in fleet.toml override others, tags add up, and the registry has the trust state.

    A device of the file alone is expected; nothing is written.
    """
    folder = FleetFolder(tmp_path)
    device_tables = (
        '[device.pi5-01]\nboard = "pi5-8gb"\ntags = ["rack"]\n[device.new]\nserial = "7"\n'
    )
    folder.fleet_file.write_text(f'fleet = "lab"\n[server]\nbroker = "b"\n{device_tables}')
    registry = Registry(folder.registry)
    with registry.transaction() as connection:
        devices.put(connection, FLEET[0])
    pi, new = sorted(
        selection.read_devices(folder, registry), key=lambda candidate: candidate.device != "pi5-01"
    )
    merged = {"board": "pi5-8gb", "tags": ("rack", "coral"), "trust": "accepted"}
    assert {name: getattr(pi, name) for name in merged} == merged
    of_the_file = {"device": "new", "fleet": "lab", "serial": "7", "trust": "expected"}
    assert {name: getattr(new, name) for name in of_the_file} == of_the_file
    assert devices.read(registry) == [FLEET[0]]
    assert selection.select_devices(folder, registry, "rack") == [pi]
    with pytest.raises(
        ConfigError, match=r"no device matches 'board=pi6'.*boards pi5-8gb; tags coral, rack"
    ):
        selection.select_devices(folder, registry, "board=pi6")
    registry.close()
