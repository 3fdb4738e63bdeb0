"""Every kind of switch: on, off, cycle, state; and what is wrong with it in one line."""

import os
import stat
from pathlib import Path

import pytest

from edgemeter.agent.base.errors import ConfigError, EdgemeterError, TransientError, UnavailableError
from edgemeter.provisioning.inventory import fleet_file
from edgemeter.provisioning.inventory.fleet_folder import FleetFolder
from edgemeter.provisioning.rescue import SWITCHES, wiring
from edgemeter.provisioning.rescue.wiring import open_switch
from tests.fixtures.rows import table_row
from tests.provisioning.rescue.conftest import serve


def test_a_switch_of_the_network_turns_off_and_on_and_reports_it(played, wired):
    """What it was ordered, it is."""
    switch = open_switch(wired(f"{played.scheme}://{played.meter.address}"))
    assert switch.state().is_on is True
    switch.turn("off")
    assert (played.state["on"], switch.state().is_on) == (False, False)
    switch.turn("on")
    assert (played.state["on"], switch.state().is_on) == (True, True)


def test_a_cycle_is_timed_by_the_switch_itself(played, wired):
    """A server that dies in between leaves no board in the dark."""
    switch = open_switch(wired(f"{played.scheme}://{played.meter.address}"))
    states = []

    def sleep(seconds):
        states.append((played.state["on"], played.state["timer"]))
        played.sleep(seconds)

    switch.cycle(10, sleep)
    assert states == [(False, (10.0, True))]
    assert played.state["on"] is True


def test_a_timer_that_did_not_run_is_made_good(played, wired):
    """The power is given back by hand."""
    switch = open_switch(wired(f"{played.scheme}://{played.meter.address}"))
    switch.cycle(10, lambda _: None)
    assert played.state["on"] is True


def test_a_switch_that_would_stay_off_after_a_power_cut_is_warned_of(played, wired):
    """Then the board is gone after the next one."""
    played.state["initial"] = 0 if played.scheme == "tasmota" else "off"
    (warning,) = open_switch(wired(f"{played.scheme}://{played.meter.address}")).state().warnings
    assert "power" in warning


@pytest.mark.parametrize("how", [{"drops": 9}, {"protect": "basic"}], ids=["drops", "asks for a password"])
@pytest.mark.parametrize("kind", ["shelly gen2", "shelly gen1", "tasmota"])
def test_a_switch_that_does_not_reply_or_wants_a_password_is_one_line(wired, kind, how):
    """No traceback, and the board keeps its power."""
    for played in serve(kind, **how):
        with pytest.raises((TransientError, ConfigError)) as raised:
            open_switch(wired(f"{played.scheme}://{played.meter.address}")).turn("off")
        assert "\n" not in str(raised.value)
        assert played.state["on"] is True


@pytest.mark.parametrize("protect", ["basic", "MD5", "SHA-256"])
def test_a_password_comes_from_a_file_and_right_or_wrong_decides(wired, tmp_path, protect):
    """Digest as Shelly's second generation asks for it, Basic as its first."""
    path = tmp_path / "password"
    for played in serve("shelly gen2", protect=protect):
        entry = f'[switch.plug]\naddress = "shelly://{played.meter.address}"\npassword_file = "{path}"\n'
        path.write_text("secret\n")
        open_switch(wired("switch:plug", entry)).turn("off")
        assert played.state["on"] is False
        path.write_text("wrong\n")
        with pytest.raises(UnavailableError, match="refuses the password"):
            open_switch(wired("switch:plug", entry)).turn("on")


@pytest.mark.parametrize("kind", ["shelly gen2", "shelly gen1", "tasmota"])
def test_a_reply_that_is_none_is_one_line(wired, kind):
    """Cut, garbled, or of another device."""
    for played in serve(kind):
        for body in (b"", b"{", b"[]", b'{"ison": 5}', b"<html>", b'{"gen": 2, "output": "yes"}'):
            played.meter.answer = lambda _, body=body: (200, body)
            with table_row(body), pytest.raises(EdgemeterError):
                open_switch(wired(f"{played.scheme}://{played.meter.address}")).state()


def test_an_absent_channel_is_reported(wired):
    """The message repeats what the device reports."""
    for played in serve("shelly gen2"):
        with pytest.raises(UnavailableError, match="value 3 not found"):
            open_switch(wired(f"shelly://{played.meter.address}/3")).turn("off")


def test_nothing_there_is_transient(wired):
    """A plug may come back."""
    with pytest.raises(TransientError, match="does not answer"):
        open_switch(wired("shelly://127.0.0.1:9")).state()


@pytest.fixture
def program(tmp_path, monkeypatch):
    """Return a function that puts a program of a name onto the path."""
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")

    def put(name, text):
        path = tmp_path / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return path

    return put


def test_a_port_of_a_hub_is_switched_by_the_commands_of_the_page(program, wired):
    """The example of docs/fleet-health.md, as it stands there."""
    path = program("uhubctl", '#!/bin/sh\necho "$@" >> "$0.asked"\n')
    page = (Path(__file__).resolve().parents[3] / "docs/fleet-health.md").read_text()
    written = page.partition('```toml title="fleet.toml"\n')[2].partition("```")[0]
    switch = open_switch(wired("external:hub-port-2", written.partition("[switch.")[1] + written.partition("[switch.")[2]))
    switch.cycle(10, lambda _: None)
    commands = path.with_name("uhubctl.asked").read_text().splitlines()
    assert commands == ["-l 1-1.4 -p 2 -a off -r 100", "-l 1-1.4 -p 2 -a on"]


EXTERNAL = """[switch.poe]
on = ["{0}", "on", "{{device}}"]
off = ["{0}", "off", "{{device}}; touch {1}"]
state = ["{0}", "state"]
"""


def test_an_external_switch_runs_its_words_without_a_shell(program, wired, tmp_path):
    """`{device}` stands for the device; a semicolon is a letter."""
    path = program("poe", '#!/bin/sh\n[ "$1" = state ] && echo ON\nprintf "%s|" "$@" >> "$0.asked"\n')
    switch = open_switch(wired("external:poe", EXTERNAL.format(path, tmp_path / "shell")))
    switch.turn("on")
    switch.turn("off")
    assert switch.state().is_on is True
    assert path.with_name("poe.asked").read_text() == f"on|pi-1|off|pi-1; touch {tmp_path / 'shell'}|state|"
    assert not (tmp_path / "shell").exists()


def test_an_external_switch_that_fails_gives_the_power_back_all_the_same(program, wired, tmp_path):
    """Switched off, failed to wait: on comes in any case."""
    path = program("poe", '#!/bin/sh\nprintf "%s|" "$1" >> "$0.asked"\n')
    switch = open_switch(wired("external:poe", EXTERNAL.format(path, tmp_path)))

    def sleep(_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        switch.cycle(10, sleep)
    assert path.with_name("poe.asked").read_text() == "off|on|"


def test_an_external_switch_that_fails_is_reported(program, wired, tmp_path):
    """With its status and its last line."""
    for text, message in (("#!/bin/sh\nexit 3\n", "status 3"), ("#!/bin/sh\necho maybe\n", "print on or off")):
        with table_row(text), pytest.raises(UnavailableError, match=message):
            open_switch(wired("external:poe", EXTERNAL.format(program("poe", text), tmp_path))).state()


def test_what_is_no_switch_is_refused_with_how_it_is_written(wired):
    """An unknown kind, an absent entry and an address that is none: one line for each."""
    for text in (
        "",
        "shelly",
        "shelly://",
        "telnet://host",
        "external:none",
        "switch:none",
        "external://x",
        "shelly://a b",
        "shelly://h/0/1",
    ):
        with table_row(text):
            with pytest.raises(ConfigError) as raised:
                wired(text)
            assert "\n" not in str(raised.value)


def test_what_two_devices_share_is_determined_by_the_switch(wired, program, tmp_path):
    """The same channel; a command that knows its device is nobody else's."""
    assert wired("shelly://h/0").shared != wired("shelly://h/1").shared
    own_commands = EXTERNAL.format(program("poe", ""), tmp_path)
    assert wired("external:poe", own_commands, device="a").shared != wired("external:poe", own_commands, device="b").shared
    plain = own_commands.replace("{device}", "x")
    assert wired("external:poe", plain, device="a").shared == wired("external:poe", plain, device="b").shared


def test_every_switch_of_the_table_is_there():
    """A line without its class is a line too many."""
    for name, where in SWITCHES.items():
        module, _, kind = where.partition(":")
        assert hasattr(__import__(module, fromlist=[kind]), kind), name


def test_a_device_without_a_switch_has_none(wired, tmp_path):
    """Not every board hangs on one."""
    wired("shelly://h")
    assert wiring.wiring_of("pi-2", fleet_file.read(tmp_path / "fleet.toml"), FleetFolder(tmp_path)) is None
