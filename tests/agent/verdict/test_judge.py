"""Facts about `edgemeter.agent.verdict.judge`, its words and `edgemeter config rules`."""

import json

import msgspec
import pytest
from click.testing import CliRunner

from edgemeter.agent.contract.record_accuracy import OutputCheck
from edgemeter.agent.contract.record_conditions import Condition, Verdict, Violation
from edgemeter.agent.verdict import words
from edgemeter.agent.verdict.facts import Facts
from edgemeter.agent.verdict.judge import RULES, judge
from edgemeter.agent.verdict.siblings import judged_together
from edgemeter.collector.cli.rules import rules
from tests.fixtures.measured_factory import measured
from tests.fixtures.record_factory import make_latency, make_record, violating
from tests.fixtures.rows import table_row

BUSY = Violation(rule="busy-machine", numbers={"other_load_ratio": 0.4}, subject="ffmpeg")


def test_the_worst_state_wins_and_every_violation_stays():
    """A run that is both disturbed and invalid is invalid, and nothing is hidden."""
    run = measured(output_check=OutputCheck(compared=8, differing=3))
    judged = judge(Facts(run, (Condition(when="during", throttled_now=True),)))
    assert (judged.state, judged.rules) == ("invalid", ("outputs-differ", "throttled"))


def test_there_are_forty_rules_of_different_names():
    """The forty rules include the notes."""
    assert len(RULES) == len(words.BY_NAME) <= 40


def session_of(*p50s_ms, states=None, session_started_at_ns=7, **changes):
    return [
        make_record(
            id=f"{session_started_at_ns}-{index}", repeat=index,
            session_started_at_ns=session_started_at_ns,
            latency=make_latency(p50_ms=p50_ms),
            verdict=Verdict(state=(states or {}).get(index, "ok")), **changes,
        )
        for index, p50_ms in enumerate(p50s_ms)
    ]  # fmt: skip


def apart(runs):
    return [
        run.latency.p50_ms
        for run in judged_together(runs)
        if "apart-from-siblings" in run.verdict.rules
    ]


def test_a_run_that_lies_apart_from_its_siblings_is_disturbed():
    """It differs by a tenth at least, and by more than its siblings scatter.

    This needs three runs; invalid runs and those without a p50 do not count.
    """
    for runs, expected in [
        (session_of(1.58, 1.59, 2.92), [2.92]),
        (session_of(2.92, 1.58, 1.59), [2.92]),
        (session_of(1.0, 1.59, 1.58, 1.58), [1.0]),
        (session_of(1.59, 2.92), []),
        (session_of(1.58, 1.59, 1.73), []),
        (session_of(1.58, 1.59, 1.76), [1.76]),
        (session_of(1.0, 1.3, 1.7), []),
        (session_of(1.58, 1.59, 2.92, states={2: "invalid"}), []),
        (session_of(1.58, None, 2.92), []),
        (session_of(1.58, 1.59, 1.6, 2.92, states={3: "disturbed"}), [2.92]),
    ]:
        with table_row([run.latency.p50_ms for run in runs]):
            assert apart(runs) == expected


def test_siblings_are_runs_of_one_case_in_one_session():
    """Runs of another session, of no session and of another case are no siblings."""
    assert apart([*session_of(1.58, 1.59), *session_of(2.92, session_started_at_ns=8)]) == []
    assert apart(session_of(1.58, 1.59, 2.92, session_started_at_ns=0)) == []
    assert apart([*session_of(1.58, 1.59), *session_of(2.92, scenario="offline")]) == []


def test_a_run_that_lies_apart_keeps_its_other_violations_and_its_place():
    """The published record is not changed, and the numbers tell by how much the run differs."""
    runs = session_of(1.58, 2.92, 1.59)
    doubted = msgspec.structs.replace(runs[1], verdict=violating("disturbed", "throttled"))
    judged = judged_together([runs[0], doubted, runs[2]])
    assert [run.id for run in judged] == [run.id for run in runs]
    assert judged[1].verdict.rules == ("throttled", "apart-from-siblings")
    assert judged[1].verdict.violations[1].numbers == {
        "latency_p50_ms": 2.92,
        "siblings_p50_ms": 1.59,
        "siblings": 3,
    }
    assert doubted.verdict.rules == ("throttled",)


def test_words_are_made_of_the_row_and_the_numbers():
    """Optional parts appear if their values exist, and braces of a device stay text.

    An unknown rule is shown as the record holds it.
    """
    for violation, sentence in [
        (BUSY, "other processes used 40% of the cores while timing (mostly ffmpeg)"),
        (
            msgspec.structs.replace(BUSY, subject=None),
            "other processes used 40% of the cores while timing",
        ),
        (
            msgspec.structs.replace(BUSY, subject="{subject} [x]"),
            "other processes used 40% of the cores while timing (mostly {subject} [x])",
        ),
        (msgspec.structs.replace(BUSY, numbers={}), "busy-machine subject ffmpeg"),
        (Violation(rule="of-tomorrow", numbers={"a": 1.5}), "of-tomorrow a 1.5"),
    ]:
        assert words.sentence_of(violation) == sentence
    assert words.text_of(BUSY).endswith("while timing (mostly ffmpeg). Close them and run again.")


def test_the_lines_of_several_runs_name_each_rule_once():
    """The most severe rule comes first, and notes come last.

    A rule that not all runs violate states how many do.
    """
    note = Violation(rule="memory-grows", numbers={"memory_grown_mb": 20.0, "queries": 64})
    busy = Verdict(state="disturbed", violations=(BUSY,), notes=(note,))
    wrong = Verdict(state="invalid", violations=(BUSY, Violation(rule="cached-prompt")))
    lines = words.verdict_lines([busy, wrong, Verdict(state="ok")])
    assert [line.partition(":")[0] for line in lines[:-1]] == ["invalid", "disturbed", "note"]
    assert lines[1] == (
        "disturbed: other processes used 40% of the cores while timing (mostly ffmpeg) (2 of 3 "
        "runs). Close them and run again."
    )
    worse = msgspec.structs.replace(BUSY, numbers={"other_load_ratio": 0.8}, subject="make")
    line, *_ = words.verdict_lines([busy, Verdict(state="disturbed", violations=(worse,))])
    assert line.startswith(
        "disturbed: other processes used 40% to 80% of the cores while timing (mostly ffmpeg and "
        "make). Close"
    )
    unknown = Verdict(state="ok", violations=(Violation(rule="of-tomorrow"),))
    assert words.verdict_lines([unknown]) == ["disturbed: of-tomorrow."]
    assert words.verdict_lines([busy], with_notes=False) == [f"disturbed: {words.text_of(BUSY)}"]


@pytest.mark.parametrize(
    ("not_counted", "line"),
    [
        (1, "1 of 4 runs does not count, because it was disturbed."),
        (2, "2 of 5 runs do not count, because they were disturbed."),
    ],
)
def test_a_run_that_does_not_count_is_counted_and_no_reason_to_run_again(not_counted, line):
    """Three other runs were ok."""
    assert words.verdict_lines([Verdict(state="ok")] * 3, not_counted) == [line]


def test_disturbed_runs_that_count_are_not_among_those_that_do_not():
    """They are runs of another case, of which fewer than three are ok."""
    verdicts = [Verdict(state="ok")] * 3, [Verdict(state="disturbed", violations=(BUSY,))] * 2
    *_, counting, not_counted = words.verdict_lines([*verdicts[0], *verdicts[1]], 4)
    assert counting == "2 disturbed runs count, because fewer than 3 runs of their case are ok."
    assert not_counted == "4 of 9 runs do not count, because they were disturbed."
    assert words.verdict_lines([*verdicts[0], verdicts[1][0]])[-1].startswith(
        "1 disturbed run counts, because fewer than 3 runs of its"
    )
    assert len(words.verdict_lines(verdicts[1], with_notes=False)) == 1


def test_the_command_prints_every_rule():
    """The most severe come first; the table has whole names, and the JSON has everything."""
    text = CliRunner().invoke(rules, [], env={"COLUMNS": "160"}, catch_exceptions=False).stdout
    assert all(rule.name in text for rule in RULES)
    document = json.loads(
        CliRunner().invoke(rules, ["--format", "json"], catch_exceptions=False).stdout
    )
    assert {row["name"]: row["effect"] for row in document["rules"]} == {
        rule.name: rule.effect for rule in RULES
    }
    assert document["rules"][0]["effect"] == "invalid"
