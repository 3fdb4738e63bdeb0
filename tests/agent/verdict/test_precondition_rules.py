"""Facts about `edgemeter.agent.verdict.precondition_rules`: what is reported before the first run."""

from edgemeter.agent.contract.record_conditions import Condition
from edgemeter.agent.machine import conditions
from edgemeter.agent.machine.machine import recorded
from edgemeter.agent.verdict import judge as verdict
from edgemeter.agent.verdict import precondition_rules
from tests.fixtures import machine_trees
from tests.fixtures.machine_trees import write
from tests.fixtures.measured_factory import measured
from tests.fixtures.record_factory import make_environment
from tests.fixtures.rows import table_row

SOUND = {
    "governor": "performance",
    "clock_synchronised": True,
    "throttled_since_boot": False,
    "under_voltage_since_boot": False,
    "temperatures_c": {"cpu": 50.0},
    "temperature_limits_c": {"cpu": 85.0},
    "swap_used_mb": 0.0,
    "memory_available_mb": 2000.0,
    "other_load_ratio": 0.02,
    "attached": ("Coral USB (18d1:9302) at 5000 Mbit/s",),
}
CASES = [
    ("governor", {"governor": "ondemand"}, "'ondemand'"),
    ("flags-since-boot", {"throttled_since_boot": True}, "has throttled"),
    ("flags-since-boot", {"under_voltage_since_boot": True}, "too low a supply voltage"),
    (
        "flags-since-boot",
        {"throttle_events": {"oc1": 0, "oc3": 2}, "throttled_since_boot": True},
        "since the board was switched on (oc3 2)",
    ),
    ("hot-start", {"temperatures_c": {"cpu": 81.0}}, "cpu is at 81 C, within 5 C of its limit of 85 C"),
    ("hot-start", {"temperatures_c": {"cpu": 50.0, "apex_0": 76.0}}, "80 C, the assumed limit"),
    ("swap-in-use", {"swap_used_mb": 12.0}, "12 MB"),
    ("little-memory", {"memory_available_mb": 120.0}, "120 MB"),
    ("clock-unknown", {"clock_synchronised": None}, "is unknown"),
    ("clock-unknown", {"clock_synchronised": False}, "not synchronised"),
    ("coral-on-usb-2", {"attached": ("Coral USB (18d1:9302) at 480 Mbit/s",)}, "at 480 Mbit/s: plug it into a USB 3 port"),
    ("busy-before", {"other_load_ratio": 0.3}, "30%"),
]


def test_a_precondition_that_does_not_hold_is_found_and_is_part_of_the_verdict():
    """Found before the run, alone, with its evidence; the verdict of the run carries the same words."""
    for name, changes, evidence in CASES:
        with table_row(name):
            before = Condition(when="before", **SOUND | changes)
            ((rule, evidence_seen),) = precondition_rules.violated(before, make_environment())
            assert rule.name == name
            assert evidence in evidence_seen
            judged = verdict.judge(measured(), (before,), make_environment())
            carried = judged.notes if rule.state == "note" else judged.reasons
            assert carried == (f"{name}: {evidence_seen}",)
            assert judged.state == ("valid" if rule.state == "note" else rule.state)


def test_a_guest_is_reported_as_a_shared_machine():
    """Known from the environment, not from the conditions."""
    ((rule, evidence_seen),) = precondition_rules.violated(
        Condition(when="before", **SOUND), make_environment(virtualisation="docker in kvm")
    )
    assert (rule.name, "docker in kvm" in evidence_seen) == ("shared-machine", True)


def test_what_is_in_order_or_unknown_violates_nothing_but_the_clock():
    """Of an empty machine only the wall clock is in doubt."""
    assert precondition_rules.violated(Condition(when="before", **SOUND), make_environment()) == []
    assert [rule.name for rule, _ in precondition_rules.violated(Condition(when="before"), None)] == ["clock-unknown"]


def test_a_recorded_pi_is_judged_as_it_was(tmp_path):
    """A Pi 5 with the Coral in a USB 2 port, hot, throttled once, its governor ondemand, its clock set by timesyncd."""
    write(machine_trees.raspberry_pi_5(tmp_path), {"sys/bus/usb/devices/2-1/speed": "480\n", "run/systemd/timesync/synchronized": ""})
    write(tmp_path, {"sys/devices/platform/soc@107c000000/soc@107c000000:firmware/get_throttled": "40000\n"})
    write(tmp_path, {"sys/class/thermal/thermal_zone0/temp": "78000\n"})
    violations = precondition_rules.violated(conditions.inspect("before", recorded(tmp_path)), None)
    assert [rule.name for rule, _ in violations] == ["governor", "flags-since-boot", "hot-start", "coral-on-usb-2"]


def test_violated_preconditions_are_reported_before_the_first_run(tmp_path):
    """Governor, a clock that nobody vouches for, and what others do within the half second of the look."""
    machine = recorded(machine_trees.raspberry_pi_5(tmp_path))

    def work(seconds):
        assert seconds == precondition_rules.PREFLIGHT_S
        write(tmp_path, {"proc/stat": "cpu 1060 0 500 8140 400 0 60 40 0 0\n"})

    notes = precondition_rules.preflight_notes(machine, work)
    assert [note.partition(":")[0] for note in notes] == ["governor", "clock-unknown", "busy-before"]
    assert "other processes use 30%" in notes[2]
