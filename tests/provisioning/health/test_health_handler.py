"""The handler for health: presence, canary runs, and who is suspect and why."""

import time

import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.mqtt_session import Message
from edgemeter.agent.contract import messages
from edgemeter.agent.contract.messages import Birth
from edgemeter.agent.contract.orders import Canary
from edgemeter.provisioning.health import device_view, overview
from edgemeter.provisioning.registry import canary_runs, devices, jobs
from edgemeter.provisioning.registry.devices import Device
from tests.fixtures.rows import table_row
from tests.provisioning.health.conftest import Lab

USUAL = {"latency_p50_ms": 10.0, "energy_gross_mj": 50.0}


@pytest.fixture
def usual_lab(lab):
    """Return a lab whose pi-1 has shown for eight days what it usually does."""
    lab.says("pi-1", "online", power_mode="15W")
    for day in range(8):
        lab.measures("pi-1", latency_p50_ms=10 + 0.05 * (day % 3), energy_gross_mj=50 + 0.2 * (day % 4))
    return lab


def test_an_online_device_without_a_challenge_takes_no_orders_and_the_list_has_the_reason(lab):
    """A run that delivers is online, too; with the agent's challenge the note is gone."""

    def noted():
        (line,) = overview.read(lab.folder, lab.registry, lab.now_ns)
        is_stated = device_view.overview_document(line)["takes_no_orders"]
        return line.presence, is_stated, [issue.text for issue in line.issues if issue.kind == "orders"]

    lab.says("a", "online", challenge=None)
    lab.passes(1)
    assert noted() == ("online", True, [overview.TAKES_NO_ORDERS])
    lab.says("a", "online")
    lab.passes(1)
    assert noted() == ("online", False, [])


def test_a_late_will_changes_nothing_about_the_session_after_it(lab):
    """The broker finds a dead connection when its successor is long there."""
    lab.says("pi-1", "online", session=1)
    lab.says("pi-1", "online", session=2)
    lab.says("pi-1", "lost", session=1)
    lab.passes(1)
    assert devices.find_presence(lab.registry, "pi-1").state == "online"
    lab.says("pi-1", "lost", session=2)
    lab.passes(1)
    lost = devices.find_presence(lab.registry, "pi-1")
    assert lost.state == "lost"
    # What is retained comes again when the service starts.
    time.sleep(0.01)
    lab.says("pi-1", "lost", session=2)
    lab.passes(1)
    assert devices.find_presence(lab.registry, "pi-1").since_ns == lost.since_ns


def test_what_was_received_before_a_revocation_and_is_written_after_it_leaves_nobody_online(lab):
    """The broker disconnected the device meanwhile, which reports nothing any more."""
    lab.says("pi-1", "online")
    with lab.registry.transaction() as connection:
        devices.put(connection, Device("pi-1", "lab", "1000", "pi5", (), "revoked", None, None, None, 5))
    lab.passes(1)
    assert devices.find_presence(lab.registry, "pi-1").state == "offline"


def test_an_agent_that_reports_no_health_is_known_by_its_birth(lab):
    """An older one: board and version are there."""
    birth = Birth(device="pi-1", fleet="lab", session=1, agent="0.1", board="Pi", os=None, arch="x", runtimes={})
    lab.handler.received(Message("edgemeter/v1/lab/pi-1/birth", messages.encode_message(birth)))
    lab.passes(1)
    presence = devices.find_presence(lab.registry, "pi-1")
    assert (presence.agent, presence.board, presence.health) == ("0.1", "Pi", None)


def test_a_health_that_is_none_or_of_another_device_is_refused(lab):
    """Its topic names the device."""
    for payload in (b"{", b'{"device": "pi-2", "fleet": "lab", "session": 1, "told_ns": 5, "agent": "1"}'):
        with table_row(payload), pytest.raises(ConfigError):
            lab.handler.received(Message("edgemeter/v1/lab/pi-1/health", payload))


def test_a_new_device_measures_soon_and_its_first_run_is_discarded(lab):
    """The first run after a start is not like the others."""
    lab.says("pi-1", "online", boot_id="a")
    lab.passes(1)
    assert lab.open_golden("pi-1") is None
    lab.passes(canary_runs.AFTER_START_S + canary_runs.SPREAD_S)
    assert jobs.find(lab.registry, lab.open_golden("pi-1").job).work == Canary(discard_first=True)


def test_each_day_one_canary_run_and_after_a_start_another(usual_lab):
    """Not one a poll, and none for a board that has one open."""
    usual_lab.passes(86_400)
    first = usual_lab.open_golden("pi-1")
    assert jobs.find(usual_lab.registry, first.job).work == Canary(discard_first=False)
    usual_lab.passes(3600)
    assert len(jobs.unfinished_executions(usual_lab.registry)) == 1
    usual_lab.ends("pi-1", **USUAL)
    usual_lab.says("pi-1", boot_id="b")
    usual_lab.passes(1)
    usual_lab.passes(canary_runs.AFTER_START_S + canary_runs.SPREAD_S)
    assert jobs.find(usual_lab.registry, usual_lab.open_golden("pi-1").job).work == Canary(discard_first=True)


def test_a_device_that_is_away_gets_no_canary_run(lab):
    """It would wait for it; it is due when it is back."""
    lab.says("pi-1", "lost", boot_id="a")
    lab.passes(1)
    lab.passes(90_000)
    assert lab.open_golden("pi-1") is None
    lab.says("pi-1", "online", session=2, boot_id="a")
    lab.passes(6)
    assert lab.open_golden("pi-1") is not None


def test_fleet_toml_sets_how_often_and_zero_is_never(lab):
    """A fleet that measures all day needs none."""
    lab.folder.fleet_file.write_text('fleet = "lab"\n[health]\ngolden_hours = 0\n')
    lab.says("pi-1", "online", boot_id="a")
    lab.passes(1)
    lab.passes(90_000)
    assert lab.open_golden("pi-1") is None
    with lab.registry.transaction() as connection:
        canary_runs.plan_canary_now(connection, "pi-1", "lab", lab.now_ns)
    lab.passes(10)
    lab.ends("pi-1", latency_p50_ms=10.0)
    lab.passes(90_000)
    assert lab.open_golden("pi-1") is None


def test_how_often_can_be_changed_while_it_serves(usual_lab):
    """From daily to never, and to hourly."""
    usual_lab.folder.fleet_file.write_text('fleet = "lab"\n[health]\ngolden_hours = 0\n')
    usual_lab.passes(90_000)
    usual_lab.passes(90_000)
    assert usual_lab.open_golden("pi-1") is None
    usual_lab.folder.fleet_file.write_text('fleet = "lab"\n[health]\ngolden_hours = 1.0\n')
    usual_lab.passes(61)
    usual_lab.passes(3700)
    assert usual_lab.open_golden("pi-1") is not None


def test_without_five_earlier_runs_nobody_is_judged(lab):
    """There is no band yet, and that is reported."""
    lab.says("pi-1", "online", boot_id="a")
    for factor in (1, 2, 1, 3):
        lab.measures("pi-1", latency_p50_ms=10.0 * factor)
    runs = canary_runs.read_canary_runs(lab.registry, "pi-1")
    assert device_view.canary_text(runs[-1], runs[:-1]) == "no baseline yet: 3 of 5 earlier canary runs"
    assert devices.suspects(lab.registry) == {}


def test_a_board_far_outside_its_band_is_suspect_with_what_changed_beside_it(usual_lab):
    """The figure, how far, since when, and the power mode that somebody set."""
    usual_lab.says("pi-1", power_mode="7W")
    usual_lab.measures("pi-1", latency_p50_ms=16.0, energy_gross_mj=50.1)
    reason = devices.suspects(usual_lab.registry)["pi-1"]
    assert reason.startswith("latency_p50_ms is 16, +59.")
    assert " UTC; changed at the same time: power mode 15W -> 7W" in reason


def test_what_a_run_reports_against_itself_stands_in_the_reason(usual_lab):
    """Another load, not the board: somebody who reads it knows what to check."""
    usual_lab.measures("pi-1", latency_p50_ms=16.0, energy_gross_mj=50.1, reason="waited-for-core: its threads waited 8,479 ms for a core")
    assert "changed at the same time: its own verdict valid -> waited-for-core" in devices.suspects(usual_lab.registry)["pi-1"]


def test_a_single_run_a_little_outside_is_repeated_and_two_are_believed(usual_lab):
    """10% more energy: found by the second run, ten minutes later."""
    usual_lab.measures("pi-1", latency_p50_ms=10.0, energy_gross_mj=55.5)
    assert devices.suspects(usual_lab.registry) == {}
    usual_lab.passes(canary_runs.SOON_S)
    usual_lab.ends("pi-1", latency_p50_ms=10.0, energy_gross_mj=55.5)
    assert devices.suspects(usual_lab.registry)["pi-1"].startswith("energy_gross_mj is 55.5")
    assert "no other known change" in devices.suspects(usual_lab.registry)["pi-1"]


def test_a_single_disturbed_run_makes_nobody_suspect(usual_lab):
    """The one after it is as ever."""
    usual_lab.measures("pi-1", latency_p50_ms=11.0, energy_gross_mj=50.0)
    usual_lab.passes(canary_runs.SOON_S)
    usual_lab.ends("pi-1", **USUAL)
    assert devices.suspects(usual_lab.registry) == {}
    with usual_lab.registry.transaction() as statements:
        assert canary_runs.count_canary_failures(statements, "pi-1") == 0


def test_a_suspect_is_good_again_after_three_good_runs(usual_lab):
    """One is not enough, and a bad one between begins the count anew; a slow month makes no band of slow runs."""
    for _ in range(30):
        usual_lab.measures("pi-1", latency_p50_ms=30.0)
    suspected = []
    for latency_ms in (10.0, 10.0, 30.0, 10.0, 10.0, 10.0):
        usual_lab.passes(86_400)
        usual_lab.ends("pi-1", latency_p50_ms=latency_ms)
        suspected.append("pi-1" in devices.suspects(usual_lab.registry))
    assert suspected == [True, True, True, True, True, False]
    assert devices.find_health_state(usual_lab.registry, "pi-1").state == "good"


def test_a_canary_run_that_fails_is_tried_again_with_growing_pauses_and_judges_nobody(usual_lab):
    """A board that cannot measure is not slow."""
    pauses = []
    usual_lab.passes(86_400)
    for _ in range(4):
        usual_lab.ends("pi-1", state="failed")
        begin_ns = usual_lab.now_ns
        while usual_lab.open_golden("pi-1") is None:
            usual_lab.passes(60)
        pauses.append(round((usual_lab.now_ns - begin_ns) / 6e10))
    assert pauses == sorted(pauses)
    assert pauses[0] <= 11
    assert pauses[-1] >= 79
    assert devices.suspects(usual_lab.registry) == {}


def test_a_service_that_starts_anew_judges_no_run_twice(usual_lab, tmp_path):
    """What was judged is noted in the same commit."""
    usual_lab.measures("pi-1", latency_p50_ms=30.0)
    count = len(canary_runs.read_canary_runs(usual_lab.registry, "pi-1"))
    restarted = Lab(tmp_path)
    restarted.now_ns = usual_lab.now_ns
    restarted.passes(60)
    assert len(canary_runs.read_canary_runs(restarted.registry, "pi-1")) == count
    assert devices.find_health_state(restarted.registry, "pi-1").good_runs == 0
    restarted.registry.close()


@pytest.mark.slow
def test_ten_thousand_devices_that_come_back_together_cost_a_few_commits(lab):
    """What is heard between two looks is one transaction."""
    commits = []
    lab.registry._database._open.set_trace_callback(lambda statement: commits.append(statement) if statement == "COMMIT" else None)
    for number in range(10_000):
        lab.says(f"pi-{number}", "online", boot_id="a")
    for _ in range(4):
        lab.passes(1)
    lab.passes(3600)
    lab.registry._database._open.set_trace_callback(None)
    # Four of what was said, one of the canary runs that are due; and one each time that there was a look for those.
    assert len(commits) <= 7
    assert len(devices.read_presence(lab.registry)) == 10_000
    assert len(jobs.unfinished_executions(lab.registry)) == 500
