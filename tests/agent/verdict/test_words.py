"""The words for verdicts."""

from edgemeter.agent.contract.record_conditions import Verdict, Violation
from edgemeter.agent.verdict.words import none_ok_text

OK = Verdict(state="ok")
DISTURBED = Verdict(
    state="disturbed", violations=(Violation(rule="apart-from-siblings", numbers={}),)
)
INVALID = Verdict(
    state="invalid",
    violations=(
        Violation(rule="failed-queries", numbers={"failed_queries": 3.0, "queries": 64.0}),
    ),
)


def test_runs_of_which_none_is_ok_are_a_sentence_with_the_worst_reason():
    """The sentence has the remedy; if one run is ok, or nothing ran, there is none."""
    text = none_ok_text([DISTURBED, INVALID])
    assert text is not None
    assert text.startswith(
        "2 runs, none of them ok; invalid: 3 of 64 queries failed (1 of 2 runs). "
    )
    assert (none_ok_text([INVALID]) or "").startswith(
        "1 run, not ok; invalid: 3 of 64 queries failed. "
    )
    assert none_ok_text([INVALID, OK]) is None
    assert none_ok_text([]) is None
