import re

import pytest

from edgemeter.collector.show.comment import MARK, to_markdown
from tests.fixtures.compared_cases import changed, comparisons
from tests.fixtures.record_factory import violating
from tests.fixtures.side_factory import make_side
from tests.fixtures.snapshot import same_as_snapshot

SIDES = ("before", "after")
LIMITS = "slower:3%,energy:5%,ap:0.5"


def rows_of(text):
    return [
        line
        for line in text.splitlines()
        if line.startswith("| ") and not line.startswith("| case")
    ]


def test_each_comparison_has_its_comment():
    """The comment has the gate's outcome, the table, failures with reason, and omissions.

    The table has value and change.
    """
    texts = [
        f"## {name}\n{to_markdown(comparison, SIDES)}"
        for name, comparison in comparisons()
        if comparison.reference != "reference"
    ]
    # Ids are made anew each time.
    same_as_snapshot(
        "pull-request-comments", re.sub(r"[0-9a-f]{8}-[0-9a-f-]{27}", "ID", "\n".join(texts))
    )


def test_the_mark_and_the_outcome_come_first_and_the_worst_case():
    """The comment can then be found again, and read in a second."""
    before = [*make_side(agent="1"), *make_side(agent="1", start=50, model="other")]
    after = [
        *make_side(agent="2", seed=2, start=100),
        *make_side(agent="2", seed=3, start=150, model="other", factor=1.2),
    ]
    text = to_markdown(changed(before, after, LIMITS), SIDES)
    lines = text.splitlines()
    assert lines[:2] == [MARK, "### Edgemeter: **fails slower:3%**"]
    first, second = rows_of("\n".join(lines))
    assert first.startswith("| other")
    assert "**fail: slower:3%**" in first
    assert "fail" not in second
    # The table and the line below it have the one interval, that of the gate.
    (interval,) = set(re.findall(r"worse, \+[\d.]+% (\(.*?\))", text))
    assert f"latency +20% {interval}, limit slower:3%" in text


def test_a_figure_has_its_interval_and_a_disturbed_run_its_reason():
    """Both are as in the table on a terminal."""
    after = make_side(agent="2", seed=2, start=100, verdict=violating("disturbed", "throttled"))
    text = to_markdown(changed(make_side(agent="1"), after), SIDES)
    assert "12.0 ± 3% → 12.0 ms ± 3%" in text
    assert re.search(r"^- .*disturbed.*", text, re.MULTILINE)


@pytest.mark.nightly
def test_a_comment_is_never_too_long_to_post():
    """The worst of 2,000 cases come first, and the others are counted."""
    sides = [
        [
            run
            for number in range(2000)
            for run in make_side(agent=agent, runs=1, start=start + number, model=f"m{number}")
        ]
        for agent, start in (("1", 0), ("2", 9000))
    ]
    text = to_markdown(changed(*sides, LIMITS), SIDES)
    assert len(text) < 65_536
    assert "more cases do not fit" in text


def test_texts_from_devices_are_only_text():
    """No table is broken, nobody is mentioned, no page and no image is linked."""
    odd = "odd: a|b <img src=x> `c` @someone ![x](http://x)\n# head"
    after = make_side(agent="2 @all|x", start=100, verdict=violating("invalid", odd))
    comparison = changed(make_side(agent="1"), [*after, *make_side(agent="2 @all|x", start=200)])
    body = to_markdown(comparison, SIDES).split("\n", 1)[1]
    assert not re.search(r"@(someone|all)|<img|!\[|\n# head", body)
    assert {line.count("|") for line in rows_of(body)} == {6}


def test_where_nothing_is_on_both_sides_the_comment_says_how_there_is_a_baseline():
    """The comment names the case without a baseline, and a gate on it is inconclusive."""
    assert (
        len(changed(make_side(agent="1", runs=1), make_side(agent="2", start=9, model="b")).rows)
        == 2
    )
    before = [*make_side(agent="1", runs=3), *make_side(agent="1", start=1, runs=3, model="c")]
    text = to_markdown(
        changed(before, make_side(agent="2", start=9, model="b"), "slower:3%"), SIDES
    )
    assert "### Edgemeter: **inconclusive, which fails: nothing could be judged**" in text
    assert "baseline: stored" in text
    assert "the baseline has no usable run of this case" in text


def test_of_two_cases_that_are_called_alike_only_the_one_that_fails_is_blamed():
    """The same model with 1 and with 4 threads has two names, each with its own findings."""
    before = [*make_side(agent="1", threads=1), *make_side(agent="1", start=50, threads=4)]
    after = [
        *make_side(agent="2", start=100, threads=1),
        *make_side(agent="2", start=150, threads=4, factor=1.3),
    ]
    four, single = rows_of(to_markdown(changed(before, after, "slower:3%"), SIDES))
    assert "4 threads" in four
    assert "fail" in four
    assert "1 thread" in single
    assert "fail" not in single
