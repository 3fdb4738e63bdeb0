"""Facts about `edgemeter.agent.machine.conditions` and the modules that it asks."""

import dataclasses
import os
import subprocess
import sys
import time

import psutil
import pytest

from edgemeter.agent.contract.record_conditions import Condition
from edgemeter.agent.machine import conditions, load, temperatures, throttling
from edgemeter.agent.machine.machine import recorded
from tests.fixtures import machine_trees
from tests.fixtures.machine_trees import write

FIRMWARE = "sys/devices/platform/soc/soc:firmware/get_throttled"


def test_a_cool_raspberry_pi_5_has_nothing_to_report(tmp_path):
    """The temperature, the clock and four clear flags are read."""
    condition = conditions.inspect("before", recorded(machine_trees.raspberry_pi_5(tmp_path)))
    assert condition.temperatures_c == {"cpu-thermal": 47.7}
    assert (condition.clock_hz, condition.clock_max_hz) == (1.5e9, 2.4e9)
    flags = (
        condition.throttled_now,
        condition.throttled_since_boot,
        condition.under_voltage_now,
        condition.under_voltage_since_boot,
    )
    assert flags == (False, False, False, False)
    assert (condition.other_load_ratio, condition.steal_ratio, condition.swap_used_mb) == (
        None,
        None,
        0.0,
    )


def test_throttle_flags_are_hexadecimal_with_or_without_0x():
    """Linux omits the 0x in sysfs, and 50005 read as decimal is another set of flags."""
    for printed, flags in [
        ("50005", 0x50005),
        ("throttled=0x50005\n", 0x50005),
        ("0x0", 0),
        ("throttled=0x0", 0),
        ("0", 0),
        ("error=1", None),
        ("", None),
    ]:
        assert throttling.flags_of(printed) == flags, f"{printed!r}"


def test_the_flags_of_a_throttled_pi_are_distinguished(tmp_path):
    """The present and the past state of each flag are told apart.

    0x50005 is under-voltage and throttling, now and since boot. 0x20000 is a clock that was capped
    once, and 0x8 is the soft limit now.
    """
    machine = recorded(tmp_path)
    write(tmp_path, {FIRMWARE: "50005\n"})
    assert throttling.read(machine) == throttling.Throttling(
        throttled_now=True,
        throttled_since_boot=True,
        under_voltage_now=True,
        under_voltage_since_boot=True,
    )
    write(tmp_path, {FIRMWARE: "20000\n"})
    assert throttling.read(machine) == throttling.Throttling(
        throttled_now=False,
        throttled_since_boot=True,
        under_voltage_now=False,
        under_voltage_since_boot=False,
    )
    write(tmp_path, {FIRMWARE: "8\n"})
    assert throttling.read(machine) == throttling.Throttling(
        throttled_now=True,
        throttled_since_boot=False,
        under_voltage_now=False,
        under_voltage_since_boot=False,
    )


def test_a_jetson_counts_over_current_events(tmp_path):
    """Two events since boot set the throttle flags, and oc1 counts under-voltage.

    The throttle alert shows the present.
    """
    machine = recorded(machine_trees.jetson_orin_nano(tmp_path))
    assert throttling.read(machine) == throttling.Throttling(
        throttled_now=False,
        throttled_since_boot=True,
        under_voltage_since_boot=False,
        throttle_events={"oc1": 0, "oc2": 0, "oc3": 2},
    )
    write(
        tmp_path,
        {
            "sys/class/thermal/cooling_device0/cur_state": "1\n",
            "sys/class/hwmon/hwmon3/oc1_event_cnt": "1\n",
        },
    )
    assert throttling.read(machine) == throttling.Throttling(
        throttled_now=True,
        throttled_since_boot=True,
        under_voltage_since_boot=True,
        throttle_events={"oc1": 1, "oc2": 0, "oc3": 2},
    )


def test_conditions_before_and_after_also_hold_what_takes_longer(tmp_path):
    """The governor and the power mode (id and name) are not read during a run."""
    pi = recorded(machine_trees.raspberry_pi_5(tmp_path / "pi"))
    before = conditions.inspect("before", pi)
    assert (before.governor, before.power_mode) == ("ondemand", None)
    during = conditions.inspect("during", pi)
    assert during.governor is None
    output = {"nvpmodel": "NV Power Mode: MAXN_SUPER\n2\n"}
    jetson = dataclasses.replace(
        recorded(machine_trees.jetson_orin_nano(tmp_path / "jetson")),
        output=lambda arguments: output.get(arguments[0]),
    )
    assert conditions.inspect("after", jetson).power_mode == "2 MAXN_SUPER"
    assert conditions.inspect("after", jetson).throttle_events == {"oc1": 0, "oc2": 0, "oc3": 2}


def test_thermometers_that_are_off_or_fake_are_left_out(tmp_path):
    """Zones of -256 C, of a PMIC's constant 100 C or without a value are left out.

    The second zone of a name gets a number.
    """
    read_c = temperatures.read(recorded(machine_trees.jetson_orin_nano(tmp_path)))
    assert read_c == {"cpu-thermal": 63.625, "cpu-thermal-2": 61.0}


def test_processors_without_a_thermal_zone_show_their_hottest_core(tmp_path):
    """The coretemp chip in hwmon gives a processor's temperature.

    A Coral has its own class, and other hwmon chips do not concern the processor.
    """
    machine_trees.intel_pc(tmp_path)
    write(tmp_path, {"sys/class/apex/apex_0/temp": "41500\n"})
    write(
        tmp_path,
        {"sys/class/hwmon/hwmon5/name": "nvme\n", "sys/class/hwmon/hwmon5/temp1_input": "30000\n"},
    )
    assert temperatures.read(recorded(tmp_path)) == {"coretemp": 55.0, "apex_0": 41.5}


def test_the_clock_is_that_of_the_core_in_use(tmp_path):
    """With a process it is its core's clock, otherwise the fastest of all policies."""
    machine = recorded(machine_trees.intel_pc(tmp_path))
    assert throttling.cpu_clocks_hz(machine, 0) == (0.8e9, 3.6e9)
    assert throttling.cpu_clocks_hz(machine, 7) == (None, None)
    write(tmp_path, {"proc/77/stat": _stat(77, 10, 5, core=1)})
    assert conditions.inspect("during", machine, pid=77).clock_hz == 3.4e9
    machine_trees.jetson_orin_nano(tmp_path)
    assert throttling.cpu_clocks_hz(machine) == (1.728e9, 1.728e9)


def _stat(pid, user, system, core=0, waited=0, started=0):
    """Return a /proc/PID/stat with a name that tries hard."""
    times = [str(user), str(system), str(waited), "0"]
    fields = [
        "S",
        *["0"] * 10,
        *times,
        *["0"] * 4,
        str(started),
        *["0"] * 16,
        str(core),
        *["0"] * 10,
    ]
    return f"{pid} (a) b (c) {' '.join(fields)}\n"


def test_the_measured_process_and_the_agent_are_none_of_the_others(tmp_path):
    """The measured process and the agent with its commands do not count as others' load.

    Of 60 busy ticks in 105, of which 5 are stolen, 20 are the measured process's and 15 the agent's
    and its commands'.
    """
    tree = {
        "proc/stat": "cpu 100 0 100 700 100 0 0 0\n",
        "proc/7/stat": _stat(7, 50, 50),
        "proc/9/stat": _stat(9, 10, 0, waited=3),
    }
    machine = recorded(write(tmp_path, tree))
    first = load.read_usage(machine, 7, 9)
    write(
        tmp_path,
        {
            "proc/stat": "cpu 160 0 100 735 100 0 0 5\n",
            "proc/7/stat": _stat(7, 70, 50),
            "proc/9/stat": _stat(9, 20, 0, waited=8),
        },
    )
    usage = load.load_between(first, load.read_usage(machine, 7, 9))
    assert (usage.other_load_ratio, usage.steal_ratio) == (0.25, 0.05)


def test_the_server_of_the_model_is_not_one_of_the_others(tmp_path):
    """A server and its worker do not count as others' load.

    They used 60 of 80 busy ticks in 100, though the worker began meanwhile; the busiest other
    process is not the server.

    A model that is measured at the same time is none of the others either; once it has gone,
    nothing is known of them.
    """
    tree = {
        "proc/stat": "cpu 100 0 100 700 100 0 0 0\n",
        "proc/5/stat": _stat(5, 10, 0),
        "proc/7/stat": _stat(7, 50, 50),
    }
    machine = recorded(write(tmp_path, tree))
    served = {5}
    watcher = conditions.ConditionWatcher(
        7, machine, table=load.read_processes(machine), served=lambda: served
    )
    watcher.mark()
    served.add(6)
    watcher.mark()
    watcher.start()
    write(
        tmp_path,
        {
            "proc/5/stat": _stat(5, 30, 0),
            "proc/6/stat": _stat(6, 40, 0),
            "proc/8/stat": _stat(8, 10, 0),
        },
    )
    write(tmp_path, {"proc/stat": "cpu 180 0 100 720 100 0 0 0\n", "proc/7/stat": _stat(7, 60, 50)})
    (condition,) = watcher.stop()
    assert (condition.other_load_ratio, condition.served_load_ratio) == (0.1, 0.6)
    assert condition.busiest_other == {"a) b (c": 0.1}
    assert load.read_usage(machine, 7, neighbours={5}).own == load.read_usage(machine, 7).own + 30
    assert load.read_usage(machine, 7, neighbours={5, 77}).own is None


def test_a_window_too_short_for_ticks_is_widened_to_the_mark_before_it():
    """The latest mark that is far enough away counts; without one the load is unknown."""
    marks = [
        load.ProcessorUsage(0, 0, 0, 0),
        load.ProcessorUsage(100, 50, 0, 0),
        load.ProcessorUsage(190, 50, 0, 0),
    ]
    usage = load.load_up_to(marks, load.ProcessorUsage(200, 60, 0, 0))
    assert usage.other_load_ratio == pytest.approx(0.1)
    assert load.load_up_to(marks[2:], load.ProcessorUsage(200, 60, 0, 0)) is None
    assert load.load_up_to([], None) is None


def _table(total, busy, watching, command, job):
    """Return the processes of a moment: who watches (with a child), and a job of another user's."""
    processes = {
        1: (0, 0, 0, "init"),
        10: (*watching, 1, "watch"),
        11: (*command, 10, "work"),
        20: (job, 0, 1, "make"),
    }
    table = load.ProcessTable(total, busy)
    for pid, (ticks, children, parent, name) in processes.items():
        table.ticks[pid, 1], table.children[pid], table.parents[pid], table.names[pid] = (
            ticks,
            children,
            parent,
            name,
        )
    return table


def test_another_job_beside_a_watched_block_counts_against_what_the_block_used():
    """The others' load is compared with the load of the block, and they are named.

    Here 4% of the cores are half of what a small block used. The same share all the time changes no
    net energy.
    """
    quiet = [_table(0, 0, (0, 0), (0, 0), 0), _table(1000, 0, (0, 0), (0, 0), 0)]
    for job, work, doubts in ((40, 40, 1), (40, 900, 0), (300, 600, 1), (0, 900, 0)):
        end = _table(2000, job + work, (0, work // 2), (work // 2, 0), job)
        over = _table(3000, job + work, (0, work // 2), (work // 2, 0), job)
        other = load.other_load([*quiet, end, over], 10)
        assert (other.block_ratio, other.idle_ratio, len(other.doubts)) == (
            job / 1000,
            0.0,
            doubts,
        ), (job, work)
        assert not doubts or other.doubts[0].endswith("during the block, most of it `make`")
    steady = [
        _table(1000 * number, 50 * number, (0, 0), (0, 0), 50 * number) for number in range(4)
    ]
    assert load.other_load(steady, 10).doubts == ()
    busy_idle = [
        *quiet[:1],
        *(_table(1000 * number, 200, (0, 0), (0, 0), 200) for number in (1, 2, 3)),
    ]
    assert "while it should idle" in load.other_load(busy_idle, 10).doubts[0]
    short = [_table(number, 0, (0, 0), (0, 0), 0) for number in range(4)]
    assert load.other_load(short, 10) == load.OtherLoad(None, None, None)


def test_the_busiest_of_the_others_is_named(tmp_path):
    """Processes of one name count together, and our own are left out.

    A reused pid starts from nothing, and brackets belong to the name.
    """
    machine = recorded(write(tmp_path, {"proc/stat": machine_trees.STAT}))
    write(tmp_path, {f"proc/{pid}/stat": _stat(pid, 100, 0) for pid in (5, 6, 7)})
    write(tmp_path, {"proc/8/stat": _stat(8, 100, 0).replace("(a) b (c)", "(one)")})
    first = load.read_processes(machine)
    write(tmp_path, {"proc/stat": "cpu 1200 0 500 8000 400 0 60 40 0 0\n"})
    write(
        tmp_path,
        {
            "proc/5/stat": _stat(5, 130, 0),
            "proc/6/stat": _stat(6, 190, 0),
            "proc/7/stat": _stat(7, 50, 0, started=99),
        },
    )
    write(tmp_path, {"proc/8/stat": _stat(8, 170, 0).replace("(a) b (c)", "(one)")})
    second = load.read_processes(machine)
    assert load.busiest(first, second, ()) == load.OtherProcess(name="a) b (c", load_ratio=0.85)
    assert load.busiest(first, second, {6}) == load.OtherProcess(name="a) b (c", load_ratio=0.4)
    assert load.busiest(first, second, {6, 7}) == load.OtherProcess(name="one", load_ratio=0.35)
    assert load.busiest(first, second, {5, 6, 7, 8}) is None
    assert load.busiest(second, second, ()) is None


def test_a_process_that_is_gone_makes_the_load_of_others_unknown(tmp_path):
    """The time stolen by the hypervisor is still known."""
    machine = recorded(write(tmp_path, {"proc/stat": "cpu 0 0 0 100 0 0 0 0\n"}))
    first = load.read_usage(machine, 7)
    write(tmp_path, {"proc/stat": "cpu 50 0 0 150 0 0 0 0\n"})
    usage = load.load_between(first, load.read_usage(machine, 7))
    assert (usage.other_load_ratio, usage.steal_ratio) == (None, 0.0)


def test_a_watcher_sums_up_its_worst_conditions():
    """It keeps the highest temperature, the median clock, any flag and the mean load.

    A rising event counter is throttling.
    """
    looks = [
        Condition(
            when="during",
            temperatures_c={"cpu": 50.0, "gpu": 40.0},
            clock_hz=1e9,
            clock_max_hz=2e9,
            throttled_now=False,
            swap_used_mb=1.0,
        ),
        Condition(
            when="during",
            temperatures_c={"cpu": 70.0},
            clock_hz=2e9,
            clock_max_hz=2e9,
            under_voltage_now=True,
            swap_used_mb=3.0,
        ),
        Condition(
            when="during",
            temperatures_c={"cpu": 60.0},
            clock_hz=2e9,
            clock_max_hz=2e9,
            throttled_now=False,
        ),
    ]
    usage = load.load_between(
        load.ProcessorUsage(1000, 500, 0, 100), load.ProcessorUsage(1200, 580, 20, 150)
    )
    condition = conditions.summary(looks, usage, events=[{"core": 4}, {"core": 4}, {"core": 5}])
    assert condition.throttle_events == {"core": 5}
    assert condition.temperatures_c == {"cpu": 70.0, "gpu": 40.0}
    assert (condition.clock_hz, condition.clock_max_hz, condition.swap_used_mb) == (2e9, 2e9, 3.0)
    assert (
        condition.throttled_now,
        condition.under_voltage_now,
        condition.throttled_since_boot,
    ) == (True, True, None)
    assert (condition.other_load_ratio, condition.steal_ratio) == (
        pytest.approx(0.15),
        pytest.approx(0.1),
    )
    assert (
        conditions.summary(looks, usage, events=[{"core": 4}, {"core": 4}]).throttled_now is False
    )


@pytest.mark.alone
def test_the_real_kernel_separates_our_load_from_that_of_others():
    """A process that spins counts as others' load only if it is not the measured one."""
    spin = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        own_watcher, other_watcher = (
            conditions.ConditionWatcher(spin.pid, period_s=0.2),
            conditions.ConditionWatcher(None, period_s=0.2),
        )
        own_watcher.start()
        other_watcher.start()
        begin = time.monotonic()
        time.sleep(1.0)
        (without,), (with_it,) = own_watcher.stop(), other_watcher.stop()
        # On a busy machine the process does not get a whole core.
        share = (
            psutil.Process(spin.pid).cpu_times().user
            / (time.monotonic() - begin)
            / (os.cpu_count() or 1)
        )
    finally:
        spin.kill()
        spin.wait()
    assert without.other_load_ratio is not None
    assert with_it.other_load_ratio is not None
    assert with_it.other_load_ratio - without.other_load_ratio > 0.3 * share


@pytest.mark.captures
def test_captured_throttle_flags_and_trees_are_read(captures):
    """The input is the output of a real Raspberry Pi and a real Orin Nano."""
    assert (
        throttling.flags_of((captures / "pi/sysfs_get_throttled_hex_without_0x.txt").read_text())
        == 0x50005
    )
    orin = recorded(captures / "jetson/sysfs_orin_nano_tree_partial")
    assert temperatures.read(orin) == {"cpu-thermal": 63.625}
    assert throttling.read(orin) == throttling.Throttling(
        throttled_since_boot=True,
        under_voltage_since_boot=True,
        throttle_events={"oc1": 1, "oc2": 0, "oc3": 2},
    )
