"""Facts about `edgemeter.agent.verdict.environment_rules`, which note the machine's state.

It is noted once a session.
"""

from edgemeter.agent.contract.record_conditions import Condition
from edgemeter.agent.machine.machine import recorded
from edgemeter.agent.verdict import environment_rules
from edgemeter.agent.verdict.environment_rules import environment_notes
from edgemeter.agent.verdict.facts import Facts
from edgemeter.agent.verdict.judge import judge
from edgemeter.agent.verdict.rule import violations
from tests.fixtures import machine_trees
from tests.fixtures.machine_trees import write
from tests.fixtures.measured_factory import measured
from tests.fixtures.record_factory import make_environment
from tests.fixtures.rows import table_row

SOUND = {"governor": "performance", "swap_used_mb": 0.0}


def noted(changes, *, clock=True, **environment):
    before = Condition(when="before", **SOUND | changes)
    facts = Facts(measured(), (before,), make_environment(**environment), clock_synchronised=clock)
    # No run has them.
    assert not {note.rule for note in judge(facts).notes} & {
        rule.name for rule in environment_rules.RULES
    }
    return [
        (note.rule, note.numbers, note.subject)
        for _, note in violations(environment_rules.RULES, facts)
    ]


def test_a_machine_that_is_shared_or_set_otherwise_is_noted_by_name():
    """No other machine is noted, and no run's verdict repeats the note."""
    for changes, environment, note in [
        ({"governor": "ondemand"}, {}, ("governor", {}, "ondemand")),
        ({"swap_used_mb": 12.0}, {}, ("swap-in-use", {"swap_used_mb": 12.0}, None)),
        ({}, {"clock": None}, ("clock-unknown", {}, None)),
        ({}, {"clock": False}, ("clock-unknown", {}, None)),
        ({}, {"virtualisation": "docker in kvm"}, ("shared-machine", {}, "docker in kvm")),
    ]:
        with table_row(note):
            assert noted(changes, **environment) == [note]
    assert noted({}) == []


def test_a_recorded_pi_is_noted_as_it_was(tmp_path):
    """A Pi 5 has the governor ondemand and a clock that timesyncd set."""
    machine = recorded(machine_trees.raspberry_pi_5(tmp_path))
    assert [note.rule for note in environment_notes(machine)] == ["governor", "clock-unknown"]
    write(tmp_path, {"run/systemd/timesync/synchronized": ""})
    assert [note.rule for note in environment_notes(machine)] == ["governor"]
