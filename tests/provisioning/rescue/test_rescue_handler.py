"""The handler that gets lost boards back: when it cuts the power, when it does not, and when it gives up."""

import time
from dataclasses import replace
from itertools import pairwise

import pytest
from click.testing import CliRunner

from edgemeter.agent.base.mqtt_session import Message
from edgemeter.agent.contract import messages
from edgemeter.agent.contract.health import Health, Sensor
from edgemeter.agent.contract.messages import DeviceState, Progress
from edgemeter.agent.contract.orders import Canary, Doctor, Schedule
from edgemeter.provisioning.cli.main import fleet
from edgemeter.provisioning.health import overview
from edgemeter.provisioning.inventory.fleet_folder import FleetFolder
from edgemeter.provisioning.registry import devices, jobs, rescues
from edgemeter.provisioning.registry.devices import Device, DeviceReport
from edgemeter.provisioning.registry.jobs import NewJob
from edgemeter.provisioning.registry.registry import Registry
from edgemeter.provisioning.rescue.rescue_handler import RescueHandler
from tests.provisioning.rescue.conftest import serve

S = 1_000_000_000
MINUTE = 60 * S
RULES = "lost_minutes = 10\nlongest_run_minutes = 60\noff_s = 1"


class Rack:
    """A fleet whose pi-1 (and, where a test says so, others) hangs on a switch that is really there."""

    def __init__(self, path, switch):
        self.folder = FleetFolder(path)
        self.played = switch
        self.now_ns = time.time_ns()
        self.write(RULES)
        self.registry = Registry(self.folder.registry)
        self.handler = RescueHandler(self.folder, self.registry, lambda *_: None)

    def write(self, rules, further_text=""):
        """Write fleet.toml."""
        address = f"shelly://{self.played.meter.address}"
        text = f'fleet = "lab"\n[rescue]\n{rules}\n[device.pi-1]\nswitch = "{address}"\n{further_text.format(address)}'
        self.folder.fleet_file.write_text(text)

    def says(self, device, state, session=1, sensors=()):
        """Note a device's state, and what sensors it has."""
        reports = [DeviceReport(device, "lab", DeviceState(state=state, session=session), self.now_ns)]
        if sensors:
            health = Health(device=device, fleet="lab", session=session, told_ns=5, agent="1", sensors=sensors)
            reports.append(DeviceReport(device, "lab", health, self.now_ns))
        with self.registry.transaction() as connection:
            devices.put_reports(connection, reports)

    def passes(self, minutes):
        """Let time pass, the handler look, and its threads do what it told them."""
        self.now_ns += int(minutes * MINUTE)
        self.handler.poll(self.now_ns)
        for _, future in self.handler._running.values():
            future.exception()

    def cuts(self):
        """Return how often the switch was told to turn off."""
        return sum("on=false" in path for path in self.played.meter.asked)

    def runs(self, device, state="running"):
        """Put a job in flight on a device; return what ends it."""
        with self.registry.transaction() as connection:
            job = jobs.add(connection, NewJob(Doctor(), "doctor", 60), [(device, "lab")], self.now_ns)
        execution = jobs.find_execution(self.registry, job, device)

        def note(state, ended_ns=None):
            with self.registry.transaction() as connection:
                jobs.update_executions(connection, [replace(execution, state=state, ended_ns=ended_ns)])

        note(state)
        return lambda: note("timed_out", self.now_ns)


@pytest.fixture
def rack(tmp_path, monkeypatch):
    """Return a rack whose switch is a Shelly; nobody waits for its timer."""
    monkeypatch.setattr("edgemeter.provisioning.rescue.wiring.MARGIN_S", -1.0)
    for switch in serve("shelly gen2"):
        rack = Rack(tmp_path, switch)
        yield rack
        rack.handler.close()
        rack.registry.close()


def test_a_lost_board_is_cut_three_times_with_growing_pauses_and_then_needs_attention(rack):
    """10 minutes after it was lost, then 20, 40 and 80 later; and the list shows it first."""
    rack.says("pi-1", "lost")
    cut_counts = []
    for _ in range(200):
        rack.passes(1)
        cut_counts.append(rack.cuts())
    minutes = [cut_counts.index(count) + 1 for count in (1, 2, 3)]
    assert minutes[0] in {10, 11}
    assert [after - before for before, after in pairwise(minutes)] == [20, 40]
    assert cut_counts[-1] == 3
    (line,) = overview.read(rack.folder, rack.registry, rack.now_ns)
    assert line.condition == "needs attention"
    assert "its power was cycled 3 times and it did not come back; last outcome: done" in line.issues[0].text
    assert overview.urgency_rank(line.issues) == 0
    assert rack.played.state["on"] is True


def test_without_lost_minutes_nothing_is_ever_cut(rack):
    """It is off unless somebody wants it."""
    rack.write("")
    rack.says("pi-1", "lost")
    for _ in range(50):
        rack.passes(30)
    assert rack.played.meter.asked == []


def test_a_board_that_comes_back_begins_anew(rack):
    """Its next trouble has three tries again."""
    rack.says("pi-1", "lost")
    rack.passes(11)
    assert rescues.read_rescues(rack.registry)["pi-1"].attempts == 1
    rack.says("pi-1", "online", session=2)
    rack.passes(1)
    assert rescues.read_rescues(rack.registry) == {}
    assert [action.outcome for action in rescues.read_power_actions(rack.registry, "pi-1")] == ["done"]


@pytest.mark.parametrize("state", ["online", "offline"])
def test_a_board_that_is_there_or_went_offline_in_order_is_left_alone(rack, state):
    """Somebody has switched it off, or all is well."""
    rack.says("pi-1", state)
    rack.passes(1000)
    assert rack.cuts() == 0


def test_while_a_job_is_in_flight_the_power_stays_on(rack):
    """The handler for jobs ends it at its time limit, and then."""
    end = rack.runs("pi-1")
    rack.says("pi-1", "lost")
    rack.passes(600)
    assert rack.cuts() == 0
    end()
    rack.passes(1)
    assert rack.cuts() == 1


def test_a_run_without_a_report_is_waited_for(rack):
    """It was last heard to measure: for as long as its longest run, also by a service that started anew."""
    rack.handler.received(Message("edgemeter/v1/lab/pi-1/progress", messages.encode_message(Progress(session=1, doing="run 1 of 3"))))
    rack.passes(0)
    rack.says("pi-1", "lost")
    restarted = RescueHandler(rack.folder, rack.registry, lambda *_: None)
    rack.handler.close()
    rack.handler = restarted
    rack.passes(50)
    assert rack.cuts() == 0
    rack.passes(15)
    assert rack.cuts() == 1


def test_what_a_board_may_measure_by_its_own_schedule_is_waited_for(rack):
    """It keeps to its schedule without a connection: an hour after each time it may still be at it; the list says so."""
    rack.now_ns = 1_800_000_000 * S
    at = time.localtime(rack.now_ns / S + 300)
    work = Schedule(name="nightly", cron=f"{at.tm_min} {at.tm_hour} * * *", work=Canary())
    with rack.registry.transaction() as connection:
        job = jobs.add(connection, NewJob(work, "schedule", 60), [("pi-1", "lab")], rack.now_ns)
        jobs.update_executions(connection, [replace(jobs.find_execution(rack.registry, job, "pi-1"), state="done", ended_ns=rack.now_ns)])
    rack.says("pi-1", "lost")
    rack.passes(30)
    assert rack.cuts() == 0
    (line,) = overview.read(rack.folder, rack.registry, rack.now_ns)
    assert "its power is not cut: its schedule 'nightly' may have started a run" in line.issues[0].text
    rack.passes(60)
    assert rack.cuts() == 1


def test_a_schedule_that_was_ended_holds_nobody_up(rack):
    """The last word on a name counts."""
    with rack.registry.transaction() as connection:
        for number, times in enumerate(("* * * * *", "")):
            work = Schedule(name="often", cron=times, work=Canary())
            job = jobs.add(connection, NewJob(work, "schedule", 60), [("pi-1", "lab")], rack.now_ns)
            ended = replace(jobs.find_execution(rack.registry, job, "pi-1"), state="done", ended_ns=rack.now_ns + number)
            jobs.update_executions(connection, [ended])
    rack.says("pi-1", "lost")
    rack.passes(11)
    assert rack.cuts() == 1


def test_a_neighbour_on_the_same_switch_that_measures_keeps_the_power_on(rack):
    """Both hang on one outlet."""
    rack.write(RULES, '[device.pi-2]\nswitch = "{0}"\n')
    end = rack.runs("pi-2", "accepted")
    rack.says("pi-2", "online")
    rack.says("pi-1", "lost")
    rack.passes(600)
    assert rack.cuts() == 0
    end()
    rack.passes(1)
    assert rack.cuts() == 1


def test_who_measures_with_the_switch_as_its_meter_keeps_the_power_on(rack):
    """The same Shelly is the power meter of another board: turning it off would be a sample."""
    meter = f"shelly:{rack.played.meter.address}/switch:0"
    end = rack.runs("pi-9")
    rack.says("pi-9", "online", sensors=(Sensor(name="shelly", id=meter, scope="wall-ac"),))
    rack.says("pi-1", "lost")
    rack.passes(600)
    assert rack.cuts() == 0
    end()
    rack.passes(1)
    assert rack.cuts() == 1


def test_many_lost_together_are_the_network_and_nobody_is_cut(rack):
    """Four of five at once: no board did that."""
    rack.says("pi-5", "online")
    for device in ("pi-1", "pi-2", "pi-3", "pi-4"):
        rack.says(device, "lost")
    rack.passes(600)
    assert rack.cuts() == 0


def test_a_board_that_was_put_out_of_the_fleet_is_left_alone(rack):
    """The broker dropped it, so it looks lost."""
    with rack.registry.transaction() as connection:
        devices.put(connection, Device("pi-1", "lab", "1000", "pi5", (), "revoked", None, None, None, 5))
    rack.says("pi-1", "lost")
    rack.passes(600)
    assert rack.cuts() == 0
    assert overview.read(rack.folder, rack.registry, rack.now_ns)[0].issues == ()


def test_what_somebody_switched_off_stays_off(rack):
    """By hand: the rescue does not know better."""
    result = CliRunner().invoke(fleet, ["power", "pi-1", "off", "--folder", str(rack.folder.path)], catch_exceptions=False)
    assert result.stdout == "pi-1: off done, power is off\n"
    rack.says("pi-1", "lost")
    rack.passes(600)
    assert rack.cuts() == 1
    assert rack.played.state["on"] is False


def test_a_service_that_died_in_a_cycle_gives_the_power_back(rack):
    """What it was doing stands in the registry before it is done."""
    with rack.registry.transaction() as connection:
        rescues.begin_power_action(connection, "pi-1", "shelly", "cycle", "rescue", rack.now_ns)
    rack.played.state["on"] = False
    rack.passes(1)
    rack.passes(1)
    assert rack.played.state["on"] is True
    assert rescues.open_power_actions(rack.registry) == []


def test_a_switch_that_does_not_reply_counts_as_tried_with_the_reason(rack):
    """Three times, and then the board needs attention."""
    rack.played.meter.drops = 10**6
    rack.says("pi-1", "lost")
    for _ in range(200):
        rack.passes(1)
    assert "does not answer" in rescues.read_rescues(rack.registry)["pi-1"].reason


def test_by_hand_a_run_is_not_cut_off_unless_forced(rack):
    """The job is named; --force says that it is lost."""
    rack.runs("pi-1")
    arguments = ["power", "pi-1", "cycle", "--folder", str(rack.folder.path)]
    result = CliRunner().invoke(fleet, arguments)
    assert "is not cut: job doctor-" in str(result.exception)
    assert rack.cuts() == 0
    result = CliRunner().invoke(fleet, [*arguments, "--force", "--json"], catch_exceptions=False)
    assert '"is_on": true' in result.stdout
    assert rack.cuts() == 1


def test_a_rehearsal_and_a_status_switch_nothing(rack):
    """The switch is asked at most."""
    for action in (["cycle", "--dry-run"], ["status"]):
        result = CliRunner().invoke(fleet, ["power", "pi-1", *action, "--folder", str(rack.folder.path)], catch_exceptions=False)
        assert result.exit_code == 0
    assert not any("Switch.Set" in path for path in rack.played.meter.asked)
    assert result.stdout == "pi-1: on\n"
