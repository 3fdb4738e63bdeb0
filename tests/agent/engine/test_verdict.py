"""Facts about `edgemeter.agent.engine.verdict`."""

import numpy as np
import pytest

from edgemeter.agent.engine import statistics, verdict
from edgemeter.agent.records import Condition, OutputCheck, WarmUp
from tests.fixtures.measured_factory import measured

QUIET = (Condition(when="before"), Condition(when="during", other_load_ratio=0.01, steal_ratio=0.0, swap_used_mb=0.0))


def during(**facts):
    """Return a condition seen during the run."""
    return Condition(when="during", **facts)


def test_a_sound_run_on_a_quiet_machine_is_valid():
    """Nothing broken: valid, without a reason."""
    found = verdict.judge(measured(), QUIET)
    assert (found.state, found.reasons) == ("valid", ())


NOISY = np.concatenate([np.full(60, 5_000_000), np.full(60, 9_000_000)]).astype(np.int64)
CASES = [
    ("outputs-differ", "invalid", {"output_check": OutputCheck(compared=8, identical=5, worst_ratio=0.3)}, QUIET),
    ("outputs-differ", "invalid", {"output_check": OutputCheck(compared=1, identical=0, worst_ratio=float("inf"))}, QUIET),
    ("too-few-queries", "invalid", {"latency": statistics.summarise(np.full(10, 5_000_000))}, QUIET),
    ("throttled", "invalid", {}, (*QUIET, during(throttled_now=True))),
    ("under-voltage", "suspect", {}, (*QUIET, during(under_voltage_now=True))),
    ("not-steady", "suspect", {"warm_up": WarmUp(queries=900, duration_ms=10_000.0, steady=False)}, QUIET),
    ("drift", "suspect", {"thirds_p50_ms": (5.0, 5.1, 5.3)}, QUIET),
    ("wide-bounds", "suspect", {"latency": statistics.summarise(NOISY)}, QUIET),
    ("busy-machine", "suspect", {}, (*QUIET, during(other_load_ratio=0.4))),
    ("stolen-time", "suspect", {}, (*QUIET, during(steal_ratio=0.1))),
    ("swapping", "suspect", {}, (*QUIET, during(swap_used_mb=100.0))),
]


@pytest.mark.parametrize(("rule", "state", "changes", "conditions"), CASES)
def test_a_broken_rule_gives_its_state_and_evidence(rule, state, changes, conditions):
    """Each disturbance is caught by the rule that is named for it, and by no other."""
    found = verdict.judge(measured(**changes), conditions)
    assert found.state == state
    assert [reason.partition(":")[0] for reason in found.reasons] == [rule]
    assert any(sign.isdigit() or "the run" in found.reasons[0] for sign in found.reasons[0])


def test_every_rule_has_a_case_here():
    """A rule without a test of its own is not shown to work."""
    assert {rule.name for rule in verdict.RULES} == {case[0] for case in CASES}


def test_the_worst_state_wins_and_all_reasons_stay():
    """Suspect and invalid together are invalid, and nothing is hidden."""
    found = verdict.judge(measured(thirds_p50_ms=(5.0, 6.0, 7.0)), (during(throttled_now=True),))
    assert found.state == "invalid"
    assert len(found.reasons) == 2


def test_rounding_of_float_kernels_is_not_a_difference():
    """Outputs that differ in the sixth digit are the same outputs."""
    found = verdict.judge(measured(output_check=OutputCheck(compared=8, identical=0, worst_ratio=1e-6)), QUIET)
    assert found.state == "valid"
