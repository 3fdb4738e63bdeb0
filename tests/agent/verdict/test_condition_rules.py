"""Facts about `edgemeter.agent.verdict.condition_rules`, which catch disturbed runs.

Each disturbance is caught by the rule that is named for it.
"""

import msgspec
import numpy as np

from edgemeter.agent.contract import samples
from edgemeter.agent.contract.frame_times import frame_arrivals_ns
from edgemeter.agent.contract.record_conditions import Condition, RuntimeInfo
from edgemeter.agent.contract.record_figures import Load, Neighbour, Together
from edgemeter.agent.energy.window import Window
from edgemeter.agent.engine.job import Scheduling
from edgemeter.agent.verdict.facts import Facts
from edgemeter.agent.verdict.judge import judge
from tests.fixtures.measured_factory import measured
from tests.fixtures.record_factory import make_environment, make_steady
from tests.fixtures.rows import table_row

QUIET = (
    Condition(when="before", governor="performance", throttle_events={"oc1": 0, "oc3": 0}),
    Condition(
        when="during",
        other_load_ratio=0.01,
        steal_ratio=0.0,
        swap_used_mb=0.0,
        throttle_events={"oc1": 0, "oc3": 0},
    ),
    Condition(when="after", governor="performance", throttle_events={"oc1": 0, "oc3": 0}),
)
FFMPEG = {"ffmpeg": 0.3}
SLOW_CORAL = "Coral USB (18d1:9302) at 480 Mbit/s"


def scheduled(waited_ms, cores=2):
    return Scheduling(window_ms=100.0, ran_ms=99.0, waited_ms=waited_ms, cores=cores)


def runtime(name="onnx", **changes):
    return RuntimeInfo(
        **(
            {"name": name, "package": name, "version": "1", "backend": "cpu", "threads": 1}
            | changes
        )
    )


def with_condition(when, **facts):
    return tuple(
        Condition(when=when, **facts) if condition.when == when else condition
        for condition in QUIET
    )


THREADS = {"other_threads_ratio": "0.0600 noisy, thread 7"}
CASES = [
    ("throttled", {}, (*QUIET, Condition(when="during", throttled_now=True)), {}, None),
    (
        "throttled",
        {},
        with_condition("after", throttle_events={"oc1": 0, "oc3": 1}),
        {"throttle_events": 1},
        None,
    ),
    ("under-voltage", {}, (*QUIET, Condition(when="during", under_voltage_now=True)), {}, None),
    ("under-voltage", {}, with_condition("after", throttle_events={"oc1": 1, "oc3": 0}), {}, None),
    (
        "busy-machine",
        {},
        with_condition("during", other_load_ratio=0.4, busiest_other=FFMPEG),
        {"other_load_ratio": 0.4},
        "ffmpeg",
    ),
    ("waited-for-core", {"scheduling": scheduled(48.0)}, QUIET, {"waited_ratio": 0.48}, None),
    ("stolen-time", {}, with_condition("during", steal_ratio=0.1), {"steal_ratio": 0.1}, None),
    (
        "swapping",
        {},
        (*QUIET, Condition(when="during", swap_used_mb=16.0)),
        {"swap_grown_mb": 16.0},
        None,
    ),
    (
        "settings-changed",
        {},
        with_condition("after", governor="powersave"),
        {},
        "governor (performance before, powersave after)",
    ),
    (
        "settings-changed",
        {},
        (Condition(when="before", power_mode="0 15W"), Condition(when="after", power_mode="1 7W")),
        {},
        "power mode (0 15W before, 1 7W after)",
    ),
    (
        "other-threads",
        {"runtime": runtime("python", backend="in-process", facts=THREADS)},
        QUIET,
        {"other_threads_ratio": 0.06},
        "noisy, thread 7",
    ),
]


def test_each_disturbance_is_caught_by_name_with_its_numbers():
    """No other rule catches it, and the run is disturbed."""
    for rule, changes, conditions, numbers, subject in CASES:
        with table_row(rule, subject):
            judged = judge(Facts(measured(**changes), conditions, make_environment()))
            assert (judged.state, judged.rules, judged.notes) == ("disturbed", (rule,), ())
            assert (judged.violations[0].numbers, judged.violations[0].subject) == (
                numbers,
                subject,
            )


def test_a_coral_on_usb_2_disturbs_the_runs_that_use_it():
    """Runs on the processor are not disturbed, nor are runs on USB 3."""
    for name, attached, subjects in (
        ("edgetpu", SLOW_CORAL, [SLOW_CORAL]),
        ("onnx", SLOW_CORAL, []),
        ("edgetpu", "Coral USB (18d1:9302) at 5000 Mbit/s", []),
    ):
        with table_row(name, attached):
            judged = judge(
                Facts(
                    measured(runtime=runtime(name)), QUIET, make_environment(attached=(attached,))
                )
            )
            assert [
                violation.subject
                for violation in judged.violations
                if violation.rule == "coral-on-usb-2"
            ] == subjects


QUIET_RUNS = [
    ({}, QUIET),
    ({"scheduling": scheduled(3.0)}, QUIET),
    ({}, with_condition("during", other_load_ratio=0.1, steal_ratio=0.02)),
    ({}, (*QUIET, Condition(when="during", swap_used_mb=15.9))),
    (
        {
            "runtime": runtime(
                "python", backend="in-process", facts={"other_threads_ratio": "0.0300 noisy"}
            )
        },
        QUIET,
    ),
]


def test_a_sound_run_on_a_quiet_machine_is_ok():
    """Every condition is just below its limit."""
    for changes, conditions in QUIET_RUNS:
        judged = judge(Facts(measured(**changes), conditions, make_environment()))
        assert (judged.state, judged.violations, judged.notes) == ("ok", (), ()), (
            f"{changes}, {conditions}"
        )


def test_a_sticky_flag_that_came_up_during_the_run_counts():
    """A flag that is clear before and set after the run was raised in between.

    No inspection saw it. A flag that is set before is not this run's.
    """
    for flag, rule in (
        ("throttled_since_boot", "throttled"),
        ("under_voltage_since_boot", "under-voltage"),
    ):
        for before, rules in ((False, (rule,)), (True, ())):
            around = (
                Condition(when="before", **{flag: before}),
                Condition(when="after", **{flag: True}),
            )
            assert judge(Facts(measured(), around)).rules == rules, f"{flag}, {before}"


def test_a_run_with_more_threads_than_cores_may_wait_for_itself():
    """Oversubscription was asked for; with enough cores each thread has its share of waits."""
    four = runtime(threads=4)
    assert judge(Facts(measured(runtime=four, scheduling=scheduled(200.0)), QUIET)).rules == ()
    assert (
        judge(Facts(measured(runtime=four, scheduling=scheduled(10.0, cores=4)), QUIET)).rules == ()
    )
    assert judge(
        Facts(measured(runtime=four, scheduling=scheduled(60.0, cores=4)), QUIET)
    ).rules == ("waited-for-core",)


def test_waiting_for_a_core_with_another_model_at_work_is_no_doubt():
    """The wait is what is measured; without another model it makes the run disturbed."""
    neighbour = Neighbour(model="b", sha256="b" * 64, runtime="onnx", threads=1)
    for together, rules in ((None, ("waited-for-core",)), (Together(neighbours=(neighbour,)), ())):
        run = msgspec.structs.replace(
            measured(scheduling=scheduled(50.0, cores=1)), together=together
        )
        assert judge(Facts(run)).rules == rules


def test_a_build_next_to_a_server_on_this_machine_is_found_where_the_servers_share_is_known():
    """The build uses three of four cores beside a server whose load is seen.

    Where it is not seen, as in a container, the load may be the server's own.
    """
    server = measured(runtime=runtime("served", facts={"server_machine": "this"}))
    for during, rules in (
        ({"other_load_ratio": 0.75, "served_load_ratio": 0.2}, ("busy-machine",)),
        ({"other_load_ratio": 0.75}, ()),
        ({"other_load_ratio": 0.05, "served_load_ratio": 0.9}, ()),
    ):
        assert judge(Facts(server, with_condition("during", **during))).rules == rules, f"{during}"


MS = 1_000_000
RATE = 15.0


def frames_run(delays_ms, **figures):
    """Return a run of 900 frames of 40 ms by 60, whose calls begin so late after the arrival."""
    frames = len(delays_ms)
    arrivals_ns = frame_arrivals_ns(np.arange(frames), RATE)
    delays_ns = (np.asarray(delays_ms) * MS).astype(np.int64)
    series = {
        "arrival": arrivals_ns,
        "query_start": arrivals_ns + delays_ns,
        "latency": delays_ns + 40 * MS,
    }
    load = Load(samples=frames, target_per_s=RATE, utilisation_ratio=0.6, is_sustained=False)
    return measured(
        samples=tuple(samples.pack(name, "ns", values) for name, values in series.items()),
        timed=Window(0, round(frames / RATE * 1e9)),
        load=load,
        steady=make_steady(**({"frames": frames, "late": 0, "missed_ratio": 0.0} | figures)),
    )


def late_frames(*numbers, delay_ms=30.0):
    """Return the delays of 900 frames: of these `delay_ms`, of the others none."""
    delays_ms = np.zeros(900)
    delays_ms[list(numbers)] = delay_ms
    return delays_ms


def test_frames_that_the_model_misses_disturb_nothing():
    """Missed frames are a result, and a figure of the record."""
    judged = judge(Facts(frames_run(late_frames(), dropped=400, late=500, missed_ratio=1.0)))
    assert (judged.state, judged.notes) == ("ok", ())


def test_wake_ups_that_make_frames_late_disturb_the_run():
    """Two frames that began 30 ms late missed their 60 ms although the model was free.

    They took 70 ms.
    """
    (violation,) = judge(
        Facts(frames_run(late_frames(100, 500), late=2, missed_ratio=2 / 900))
    ).violations
    assert (violation.rule, violation.numbers) == (
        "schedule-not-kept",
        {"woke_late_ms": 30.0, "frames_made_late": 2},
    )
    # Two late frames among fifty that the model missed are no reason for doubt.
    assert judge(Facts(frames_run(late_frames(100, 500), late=50))).rules == ()


def test_wake_ups_that_lengthen_every_latency_disturb_the_run():
    """2 ms of 42 are more than 3%, and 1 ms is not.

    The time that a frame waited for the model does not count.
    """
    assert judge(Facts(frames_run(np.full(900, 2.0)))).rules == ("schedule-not-kept",)
    assert judge(Facts(frames_run(np.full(900, 1.0)))).rules == ()
    waited_ms = np.zeros(900)
    waited_ms[1::2] = 20
    run = frames_run(waited_ms)
    # Frames before them took until just then.
    latency_ns = np.where(waited_ms > 0, 60 * MS, 86 * MS)
    series = tuple(
        samples.pack("latency", "ns", latency_ns) if each.name == "latency" else each
        for each in run.samples
    )
    assert judge(Facts(msgspec.structs.replace(run, samples=series))).rules == ()


def test_a_frame_that_waited_for_a_failed_one_was_not_late_by_a_wake_up():
    """Frame 101 began 33 ms late because the request of frame 100 failed after 100 ms.

    The answer before it had come long ago.
    """
    run = frames_run(late_frames(101, delay_ms=33.0), dropped=1, late=1, missed_ratio=2 / 900)
    answered = tuple(
        samples.pack(each.name, "ns", np.delete(samples.unpack(each), 100)) for each in run.samples
    )
    assert judge(Facts(run)).rules == ("schedule-not-kept",)
    assert judge(Facts(msgspec.structs.replace(run, samples=answered))).rules == ()
