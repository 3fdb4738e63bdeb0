"""Test the gate: a limit passes or fails only where the whole interval shows it.

The limits are decided all together.
"""

import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract import record_conditions
from tests.fixtures.compared_cases import changed
from tests.fixtures.record_factory import violating
from tests.fixtures.rows import table_row
from tests.fixtures.side_factory import make_side

LIMITS = "slower:3%,energy:5%,ap:0.5"


def gate_of(before, after, limits=LIMITS):
    return changed(before, after, limits).gate


@pytest.mark.parametrize(
    ("factor", "limits", "outcome"),
    [
        (1.0, "slower:3%", "pass"),
        (0.7, "slower:3%", "pass"),
        (1.2, "slower:3%", "fail"),
        (1.2, "slower:30%", "pass"),
        (1.03, "slower:3%", "inconclusive"),
        (1.2, "throughput:3%", "fail"),
        (0.8, "throughput:3%", "pass"),
        (1.2, "p90:3%", "fail"),
    ],
)
def test_a_limit_is_decided_by_where_the_whole_interval_lies(factor, limits, outcome):
    """The interval lies within the limit, beyond or across it, also if lower is worse."""
    assert (
        gate_of(
            make_side(agent="1"), make_side(agent="2", start=100, seed=2, factor=factor), limits
        ).outcome
        == outcome
    )


@pytest.mark.parametrize(("factor", "outcome"), [(1.0, "pass"), (1.06, "fail")])
def test_the_advised_runs_are_those_that_decide_the_limit(factor, outcome):
    """The wider the limit of a change that keeps it, the fewer runs are advised.

    Some are advised as well for a change that is surely for the worse.
    """

    def finding_of(times, limit):
        sides = (("1", 20, 1.0), ("2", 41, factor))
        before, after = (
            [
                run
                for number in range(times)
                for run in make_side(
                    agent=agent, runs=5, spread=0.04, seed=seed, factor=of_side, start=number
                )
            ]
            for agent, seed, of_side in sides
        )
        return gate_of(before, after, limit).findings[0]

    advised = []
    for limit in ("slower:8%", "slower:10%") if outcome == "pass" else ("slower:2%", "slower:1.5%"):
        with table_row(limit):
            finding = finding_of(1, limit)
            advised.append(5 + finding.change.further)
            assert finding.outcome == "inconclusive"
            # The same values again and again.
            assert finding_of(-(-advised[-1] // 5), limit).outcome == outcome
    assert advised[0] > advised[1] > 5


def test_a_case_that_became_invalid_fails_every_limit():
    """A model ruined by the change has no figures, and does not pass.

    A case invalid on both sides is inconclusive.
    """
    below = record_conditions.Violation(
        rule="accuracy-gate",
        numbers={"accuracy_value": 0.1, "accuracy_needed_value": 0.56},
        subject="coco_ap",
    )
    before = [*make_side(agent="1"), *make_side(agent="1", start=50, model="other")]
    after = [
        *make_side(agent="2", start=100),
        *make_side(agent="2", start=150, model="other", verdict=violating("invalid", below)),
    ]
    failed = [finding for finding in gate_of(before, after).findings if finding.outcome == "fail"]
    assert [finding.limit.text for finding in failed] == LIMITS.split(",")
    assert all("other" in finding.case and "0.56" in finding.reason for finding in failed)
    two = make_side(agent="1", model="other")
    assert (
        gate_of(
            [*make_side(agent="1", model="third"), *make_side(agent="1", start=50)], two
        ).outcome
        == "inconclusive"
    )


def test_all_limits_of_all_cases_are_decided_together():
    """One limit of one case is decided at 95%, more limits at a higher confidence.

    Each is decided by the interval that is shown.
    """

    def confidences(cases):
        before = [
            run
            for index in range(cases)
            for run in make_side(agent="1", start=index, model=f"m{index}")
        ]
        after = [
            run
            for index in range(cases)
            for run in make_side(agent="2", start=1000 + index, seed=9 + index, model=f"m{index}")
        ]
        return [
            finding.change.confidence for finding in gate_of(before, after, "slower:3%").findings
        ]

    assert confidences(1) == [0.95]
    assert min(confidences(4)) >= 0.95
    assert max(confidences(4)) == pytest.approx(1 - 0.05 / 4)


def test_speed_and_energy_are_not_gated_across_two_boards_of_one_type():
    """Boards that differ by 4% are refused with the remedy, though the change does nothing.

    Memory and accuracy are judged.
    """
    sides = (
        make_side(agent="1", device="pi-1"),
        make_side(agent="2", start=100, device="pi-2", factor=1.04),
    )
    for limit in ("slower:3%", "ap:0.5,energy:5%"):
        with (
            table_row(limit),
            pytest.raises(ConfigError, match=r"two boards \(pi-1 and pi-2\).*measure both sides"),
        ):
            gate_of(*sides, limit)
    assert gate_of(*sides, "ap:0.5,memory:10%").outcome == "pass"
