"""Facts about `edgemeter.agent.verdict.judge`, the rules on the run and its conditions and the command `edgemeter config rules`."""

import json

import msgspec
import numpy as np
import pytest
from click.testing import CliRunner

from edgemeter.agent.contract import samples
from edgemeter.agent.contract.record_accuracy import OutputCheck
from edgemeter.agent.contract.record_conditions import Condition, OtherProcess, RuntimeInfo, Scheduling
from edgemeter.agent.contract.record_figures import CoolDown, Load, Memory, WarmUp
from edgemeter.agent.engine.scenarios import latency_statistics
from edgemeter.agent.verdict import (
    judge,
    run_rules,
)
from edgemeter.agent.verdict import judge as verdict
from edgemeter.collector.cli.rules import rules
from tests.fixtures.measured_factory import measured, measured_of
from tests.fixtures.record_factory import make_environment
from tests.fixtures.rows import table_row

QUIET = (
    Condition(when="before", governor="performance", clock_synchronised=True, throttle_events={"oc1": 0, "oc3": 0}),
    Condition(when="during", other_load_ratio=0.01, steal_ratio=0.0, swap_used_mb=0.0, throttle_events={"oc1": 0, "oc3": 0}),
    Condition(when="after", governor="performance", clock_synchronised=True, throttle_events={"oc1": 0, "oc3": 0}),
)
BEFORE = {"governor": "performance", "clock_synchronised": True}
NOISY = np.random.default_rng(1).permutation(np.repeat((5_000_000, 9_000_000), 60))
# Slow and fast in turn for 30 queries each: no third of the run differs from the others.
SLOW_IN_TURN = np.tile(np.repeat((5_000_000, 6_000_000), 30), 6)
SLOW_END = np.concatenate([np.full(150, 5_000_000), np.full(150, 5_400_000)]) + np.arange(300) % 7
SLOW_MIDDLE = np.concatenate([np.full(100, 5_000_000), np.full(100, 5_500_000), np.full(100, 5_000_000)]) + np.arange(300) % 7


def scheduled(waited_ms, cores=2):
    """Return how a run of 100 ms was scheduled."""
    return Scheduling(window_ms=100.0, ran_ms=99.0, waited_ms=waited_ms, preemptions=3, cores=cores)


def with_condition(when, **facts):
    """Return the quiet conditions, one of them with other facts."""
    return tuple(Condition(when=when, **facts) if condition.when == when else condition for condition in QUIET)


def repeated(**changes):
    """Return the check of two answers of a server, of which one differs from 75% on."""
    return OutputCheck(**({"compared": 2, "identical": 1, "worst_ratio": None, "common_ratio": 0.75} | changes))


CASES = [
    ("outputs-differ", "invalid", measured(output_check=OutputCheck(compared=8, identical=5, worst_ratio=0.3, differing=3)), QUIET),
    ("outputs-differ", "invalid", measured(output_check=OutputCheck(compared=1, identical=0, worst_ratio=None, differing=1)), QUIET),
    ("answers-vary", "suspect", measured(output_check=repeated(varying=1)), QUIET),
    ("answers-vary", "suspect", measured(output_check=repeated(changed=1)), QUIET),
    (
        "unrepeated-answers",
        "suspect",
        measured(output_check=repeated(compared=0, identical=0, reason="no repetition was answered (http 503: 4)")),
        QUIET,
    ),
    ("too-few-queries", "invalid", measured(latency=latency_statistics.summarise_latency(np.full(10, 5_000_000))), QUIET),
    ("not-steady", "suspect", measured(warm_up=WarmUp(queries=900, duration_ms=10_000.0, steady=False)), QUIET),
    ("drift", "suspect", measured_of(SLOW_END), QUIET),
    ("memory-grows", "suspect", measured(memory=Memory(peak_mb=900.0, grown_mb=700.0)), QUIET),
    ("drift", "suspect", measured_of(SLOW_MIDDLE), QUIET),
    ("wide-bounds", "suspect", measured(latency=latency_statistics.summarise_latency(NOISY)), QUIET),
    ("wide-bounds", "suspect", measured_of(SLOW_IN_TURN), QUIET),
    ("waited-for-core", "suspect", measured(scheduling=scheduled(48.0)), QUIET),
    ("throttled", "invalid", measured(), (*QUIET, Condition(when="during", throttled_now=True))),
    ("throttled", "invalid", measured(), with_condition("after", governor="performance", throttle_events={"oc1": 0, "oc3": 1})),
    ("under-voltage", "suspect", measured(), (*QUIET, Condition(when="during", under_voltage_now=True))),
    ("under-voltage", "suspect", measured(), with_condition("after", governor="performance", throttle_events={"oc1": 1, "oc3": 0})),
    ("busy-machine", "suspect", measured(), with_condition("during", other_load_ratio=0.4)),
    (
        "rate-not-sustained",
        "invalid",
        measured(load=Load(samples_per_query=1, samples=90, target_per_s=100.0, achieved_per_s=48.5, is_sustained=False, unserved=10)),
        QUIET,
    ),
    ("stolen-time", "suspect", measured(), with_condition("during", steal_ratio=0.1)),
    ("swapping", "suspect", measured(), (*QUIET, Condition(when="during", swap_used_mb=100.0))),
    ("settings-changed", "suspect", measured(), with_condition("after", governor="powersave")),
    (
        "settings-changed",
        "suspect",
        measured(),
        (Condition(when="before", **BEFORE, power_mode="0 15W"), Condition(when="after", power_mode="1 7W")),
    ),
]


def test_a_violated_rule_gives_its_state_and_evidence():
    """Each disturbance is caught by the rule that is named for it, and by no other."""
    for rule, state, run, conditions in CASES:
        with table_row(rule):
            judged = verdict.judge(run, conditions)
            assert judged.state == state
            assert [reason.partition(":")[0] for reason in judged.reasons] == [rule]
            assert len(judged.reasons[0].partition(": ")[2]) > 20
            assert judged.notes == ()


def test_answers_that_part_beside_others_are_noted():
    """A batch is summed in another order: that casts no doubt on the run."""
    judged = verdict.judge(measured(output_check=repeated(parting=1)), QUIET)
    assert judged.state == "valid"
    assert judged.notes == (
        "answers-part: beside others or behind a cache, 1 of 2 prompts got other answers, from 75% of the answer on at the earliest",
    )


def test_a_sound_run_on_a_quiet_machine_is_valid():
    """Nothing violated: valid, without a reason or a note."""
    judged = verdict.judge(measured(scheduling=scheduled(0.1)), QUIET, make_environment())
    assert (judged.state, judged.reasons, judged.notes) == ("valid", (), ())


def test_a_run_that_began_too_warm_is_suspect():
    """Reached, or no thermometer: no reason; not reached: suspect, with the temperature."""
    for is_reached, temperature_c, state in [(True, 49.0, "valid"), (False, 63.0, "suspect"), (None, None, "valid")]:
        cooled = CoolDown(below_c=50.0, waited_s=300.0, temperature_c=temperature_c, is_reached=is_reached)
        judged = verdict.judge(measured(), QUIET, cool_down=cooled)
        assert judged.state == state, f"{is_reached!r}"
        assert state == "valid" or "after 300 s the hottest sensor still read 63 C, not below 50 C" in judged.reasons[0], f"{is_reached!r}"


def test_modules_compiled_in_the_cold_start_are_noted():
    """The run stays valid: its queries were not touched."""
    for modules, notes in [(None, 0), (0, 0), (60, 1)]:
        cold = msgspec.structs.replace(measured().cold_start, compiled_modules=modules)
        judged = verdict.judge(measured(cold_start=cold), QUIET)
        assert (judged.state, len(judged.notes)) == ("valid", notes), f"{modules!r}"
        assert notes == 0 or judged.notes[0].startswith("compiled-at-start: 60 Python modules had no valid bytecode"), f"{modules!r}"


def test_the_worst_state_wins_and_all_reasons_stay():
    """Suspect and invalid together are invalid, and nothing is hidden."""
    judged = verdict.judge(measured_of(SLOW_END), (*QUIET, Condition(when="during", throttled_now=True)))
    assert judged.state == "invalid"
    assert [reason.partition(":")[0] for reason in judged.reasons] == ["drift", "throttled"]


def test_rounding_of_float_kernels_is_not_a_difference():
    """Outputs that differ in the sixth digit are the same outputs."""
    judged = verdict.judge(measured(output_check=OutputCheck(compared=8, identical=0, worst_ratio=1e-6)), QUIET)
    assert judged.state == "valid"


def test_a_drift_of_ten_per_cent_is_found_in_noise():
    """A run of 64 whose last half is 10% slower, with 3% of spread, is caught nearly always; thirds that differ by chance are none."""
    draw = np.random.default_rng(2)
    slope = np.where(np.arange(64) < 32, 1.0, 1.1)
    runs = [measured_of((5e6 * slope * draw.lognormal(0, 0.03, 64)).astype(np.int64)) for _ in range(40)]
    assert sum("drift" in " ".join(verdict.judge(run, QUIET).reasons) for run in runs) >= 39
    still = [measured_of((5e6 * draw.lognormal(0, 0.2, 64)).astype(np.int64)) for _ in range(40)]
    assert not any("drift" in " ".join(verdict.judge(run, QUIET).reasons) for run in still)


def test_a_line_of_users_is_no_drift():
    """Users who wait 3 ms in the last third are none, nor is a service that slows by a fiftieth; one that slows by a tenth is."""
    numbers = np.arange(150)
    arrivals_ns, waits_ns = numbers * 20_000_000, np.where(numbers < 100, 0, 3_000_000)
    for factor, is_drifting in ((1.02, False), (1.1, True)):
        service_ns = (5e6 * np.where(numbers < 100, 1.0, factor)).astype(np.int64) + numbers % 7
        series = {"latency": waits_ns + service_ns, "query_start": arrivals_ns + waits_ns, "arrival": arrivals_ns}
        load = Load(samples_per_query=1, samples=150, target_per_s=50.0, utilisation_ratio=0.25)
        packed = tuple(samples.pack(name, "ns", values) for name, values in series.items())
        run = msgspec.structs.replace(measured_of(series["latency"]), load=load, samples=packed)
        assert ("drift" in " ".join(verdict.judge(run, QUIET).reasons)) == is_drifting


def test_the_rank_sum_is_that_of_the_textbook():
    """U of 1, 2, 3 against 4, 5, 6 is 9: 4.5 above its mean of 4.5, with a variance of 5.25; the other way round the same below."""
    low, high = np.array([1.0, 2.0, 3.0]), np.array([4.0, 5.0, 6.0])
    assert run_rules.rank_sum_z(low, high) == pytest.approx(4.5 / 5.25**0.5)
    assert run_rules.rank_sum_z(high, low) == pytest.approx(-4.5 / 5.25**0.5)
    assert run_rules.rank_sum_z(np.ones(5), np.ones(5)) == 0.0


def test_a_run_with_more_threads_than_cores_may_wait_for_itself():
    """Oversubscription is what was asked for; on enough cores each thread has its own share of waiting."""
    four = RuntimeInfo(name="onnx", package="onnxruntime", version="1", backend="cpu", threads=4)
    assert verdict.judge(measured(runtime=four, scheduling=scheduled(200.0)), QUIET).state == "valid"
    assert verdict.judge(measured(runtime=four, scheduling=scheduled(10.0, cores=4)), QUIET).state == "valid"
    assert verdict.judge(measured(runtime=four, scheduling=scheduled(60.0, cores=4)), QUIET).state == "suspect"


def test_a_build_beside_a_server_on_this_machine_is_found_where_the_servers_share_is_known():
    """Three of four cores beside a server that is seen; of one that is not, as in a container, the load may be its own."""
    build = OtherProcess(name="cc1", pid=9, load_ratio=0.7)
    server = measured(
        runtime=RuntimeInfo(name="served", package="s", version="1", backend="oip,json", threads=1, facts={"server_machine": "this"})
    )
    load = {"other_load_ratio": 0.75, "busiest_other": build}
    assert "busy-machine" in verdict.judge(server, with_condition("during", served_load_ratio=0.2, **load)).rules
    assert "busy-machine" not in verdict.judge(server, with_condition("during", **load)).rules
    assert "busy-machine" not in verdict.judge(server, with_condition("during", other_load_ratio=0.05, served_load_ratio=0.9)).rules


def test_a_sticky_flag_that_came_up_during_the_run_counts():
    """Clear before, up after: it happened in between, though no inspection saw it. Up already before: not in this run."""

    def flags(before, after, name):
        return (Condition(when="before", **BEFORE, **{name: before}), Condition(when="after", **{name: after}))

    assert verdict.judge(measured(), flags(False, True, "throttled_since_boot")).state == "invalid"
    assert verdict.judge(measured(), flags(False, True, "under_voltage_since_boot")).state == "suspect"
    stayed = verdict.judge(measured(), flags(True, True, "throttled_since_boot"))
    assert (stayed.state, [note.partition(":")[0] for note in stayed.notes]) == ("valid", ["flags-since-boot"])


def test_the_command_prints_every_rule():
    """The most severe come first; names are whole in the table, and everything is in the JSON."""
    text = CliRunner().invoke(rules, [], env={"COLUMNS": "160"}, catch_exceptions=False).stdout
    assert all(rule.name in text for rule in judge.RULES)
    document = json.loads(CliRunner().invoke(rules, ["--json"], catch_exceptions=False).stdout)
    assert {row["name"]: row["broken_is"] for row in document["rules"]} == {rule.name: rule.state for rule in judge.RULES}
    assert document["rules"][0]["broken_is"] == "invalid"
    assert CliRunner().invoke(rules, ["--format", "markdown"]).stdout == judge.rules_markdown(judge.RULES)
