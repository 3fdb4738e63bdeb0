"""Facts about whole runs that cheat.

A runtime that does not do the work, or a model that was ruined, is caught by name.
"""

from pathlib import Path

import pytest

from edgemeter.agent import runtimes
from edgemeter.agent.verdict import output_rules
from edgemeter.agent.verdict.facts import Facts
from edgemeter.agent.verdict.judge import judge
from tests.fixtures.run_jobs import rapid_run

SIDE, CLASSES, ANCHORS, PHOTOGRAPHS, OBJECTS = 16, 2, 128, 15, 4


def run(model: Path, **settings):
    """Return the result of a rapid run in this process, and the rules that it breaks by name."""
    measured = rapid_run(model, idle_seconds=0.0, **settings)
    # Another process on this machine may make a run of microseconds unsteady; here only the answers
    # are judged.
    broken = [rule for rule in judge(Facts(measured)).rules if rule in ANSWER_RULES]
    return measured, broken


ANSWER_RULES = {"outputs-differ", *(rule.name for rule in output_rules.RULES)}


@pytest.mark.parametrize(
    ("cheat", "rules"),
    [
        ("Honest", []),
        ("PreviousInput", ["outputs-differ"]),
        ("Overflowing", ["not-finite"]),
        ("Growing", ["outputs-differ"]),
    ],
)
def test_a_runtime_that_cheats_is_caught_and_an_honest_one_is_not(
    tmp_path, monkeypatch, cheat, rules
):
    """Each way to cheat breaks its own rules.

    The ways are caching, answering from the input before, answering before it is done, overflowing,
    and outputs of another shape each time.
    """
    monkeypatch.setitem(runtimes.RUNTIMES, "cheat", f"tests.fixtures.cheats:{cheat}")
    measured, broken = run(tmp_path / "model.cheat", runtime="cheat")
    assert broken == rules
    assert measured.output_check.compared >= 2
