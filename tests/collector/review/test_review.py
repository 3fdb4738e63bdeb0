"""A change held against its baseline: what is worse is found, what is not is not, and nothing is bent to fit."""

import json
import re

import pytest
from click.testing import CliRunner

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.cli.main import cli
from edgemeter.agent.contract import record_conditions
from edgemeter.collector.review import document as review_document
from edgemeter.collector.review import gate
from edgemeter.collector.review.review import read_side, review
from edgemeter.collector.runs.store import StoreContents
from tests.fixtures.bundle_factory import write_bundle
from tests.fixtures.comparison_factory import document, no_energy
from tests.fixtures.ledgers import fill
from tests.fixtures.level_factory import level_runs, stepped_ms
from tests.fixtures.record_factory import make_accuracy, make_environment, violating
from tests.fixtures.review_runs import make_side
from tests.fixtures.rows import table_row

LIMITS = "slower:3%,energy:5%,ap:0.5"


def reviewed(before, after):
    """Return the review of two lists of runs."""
    return review(("before", StoreContents(before)), ("after", StoreContents(after)))


def outcomes(before, after, limits=LIMITS):
    """Return what became of each limit of the only case."""
    return {finding.limit.figure: finding.outcome for finding in gate.judge(reviewed(before, after), gate.parse(limits))}


def test_a_change_that_changes_nothing_keeps_every_limit_whatever_the_seed():
    """A gate that cries wolf is switched off."""
    for seed in range(12):
        by_figure = outcomes(make_side(agent="1", seed=seed), make_side(agent="2", seed=100 + seed, start=100))
        assert by_figure == {"slower": "kept", "energy_gross_mj": "kept", "accuracy_value": "kept"}, seed


def test_what_is_worse_by_more_than_the_limit_violates_it_and_nothing_else():
    """Faster, less energy and better never violate one; half a point less is exactly the limit."""
    for change, violated in (
        ({"factor": 1.06}, {"slower"}),
        ({"energy_factor": 1.10}, {"energy_gross_mj"}),
        ({"ap": 0.615}, {"accuracy_value"}),
        ({"factor": 0.9, "energy_factor": 0.9, "ap": 0.7}, set()),
        ({"ap": 0.62}, set()),
    ):
        with table_row(change):
            by_figure = outcomes(make_side(agent="1"), make_side(agent="2", seed=2, start=100, **change))
            assert {figure for figure, outcome in by_figure.items() if outcome == "violated"} == violated
            assert set(by_figure.values()) <= {"violated", "kept"}


def findings_of_accuracies(before, after, **bounds):
    """Return what became of a limit of half a point."""
    sides = [
        make_side(agent=agent, start=start, accuracy=make_accuracy(value=value, **bounds))
        for agent, start, value in (("1", 0, before), ("2", 100, after))
    ]
    return gate.judge(reviewed(*sides), gate.parse("ap:0.5"))


def test_an_accuracy_that_fell_beyond_the_limit_and_is_not_judged_keeps_the_gate_closed():
    """From all to nothing no part of the images moves the difference; no bounds were recorded; or chance is not excluded."""
    for after, bounds, words in (
        (0.0, {"without_parts": (0.5,) * 20}, "not judged: no part of the images moves the difference, AP 0.000 against 0.625, -0.625"),
        (0.618, {}, "not judged: no bounds recorded, AP 0.618 against 0.625, -0.007"),
        (0.618, {"low": 0.5, "high": 0.7}, "not settled: AP 0.618 against 0.625, -0.007 (95%: -0.147 to +0.142 over 80 images)"),
    ):
        with table_row(words):
            (finding,) = findings_of_accuracies(0.625, after, **bounds)
            assert (finding.outcome, finding.is_closing) == ("not judged", True)
            assert finding.words == f"{words}; in doubt a gate stays closed"


def test_a_gate_that_cannot_judge_does_not_open():
    """One run each has no interval: nothing was judged, and beyond the limit the case is named."""
    baseline = make_side(agent="1", runs=1)
    (beyond,) = gate.judge(reviewed(baseline, make_side(agent="2", runs=1, factor=1.5, start=100)), gate.parse("slower:3%"))
    assert (beyond.outcome, beyond.is_closing) == ("not judged", True)
    (within, of_all) = gate.judge(reviewed(baseline, make_side(agent="2", runs=1, start=100)), gate.parse("slower:3%"))
    assert (within.outcome, within.is_closing) == ("not judged", False)
    assert (of_all.case, of_all.outcome, of_all.is_closing) == (None, "not judged", True)


def test_runs_of_one_day_on_each_side_cannot_be_judged_unless_they_are_in_turn():
    """Ten runs of Monday and ten of Tuesday say nothing of Wednesday: neither slower nor alike; in turn the day is the same for both."""
    for factor in (1.2, 1.0):
        for start, is_in_turn in ((86_400, False), (10 * 900, False), (100, True)):
            with table_row(factor, start):
                result = reviewed(make_side(agent="1", runs=10), make_side(agent="2", runs=10, seed=2, start=start, factor=factor))
                findings = gate.judge(result, gate.parse("slower:3%"))
                (pair,) = result.pairs
                assert (pair.judgements["latency_p50_ms"].decision.reason == "one day") is not is_in_turn
                if is_in_turn:
                    assert gate.state_of(findings) == ("violated" if factor > 1 else "open")
                    continue
                assert (pair.judgements["latency_p50_ms"].outcome, gate.state_of(findings)) == ("not settled", "could not judge")
                assert json.loads(review_document.to_json(result, findings))["gate"] == "could not judge"


def test_a_side_without_a_figure_is_not_judged_rather_than_violated():
    """Nothing shows that a limit is exceeded, and the gate stays closed; the reason why there is no energy is reported."""
    ruined = violating("invalid", "throttled")
    findings = gate.judge(reviewed(make_side(agent="1"), make_side(agent="2", start=100, verdict=ruined)), gate.parse(LIMITS))
    assert {finding.outcome for finding in findings} == {"not judged"}
    assert gate.state_of(findings) == "could not judge"
    assert len(findings) == 3
    findings = gate.judge(reviewed(make_side(agent="1"), make_side(agent="2", start=100, **no_energy())), gate.parse("energy:5%"))
    assert [(finding.outcome, finding.is_closing) for finding in findings] == [("not judged", False), ("not judged", True)]
    assert findings[0].words == "no energy: no power sensor here"


def test_a_case_that_became_invalid_violates_every_limit():
    """A model ruined by the change has no figures, and that is no pass."""
    gate_rule = record_conditions.Violation(
        rule="accuracy-gate", numbers={"accuracy_value": 0.1, "accuracy_needed_value": 0.56}, subject="coco_ap"
    )
    ruined = violating("invalid", gate_rule)
    before = [*make_side(agent="1"), *make_side(agent="1", start=50, model="other")]
    after = [*make_side(agent="2", start=100), *make_side(agent="2", start=150, model="other", verdict=ruined)]
    findings = gate.judge(reviewed(before, after), gate.parse("slower:3%"))
    (violated,) = (finding for finding in findings if finding.outcome == "violated")
    assert "other" in violated.case
    assert "0.560 is needed" in violated.words


def test_no_other_baseline_takes_the_place_of_one_that_is_missing():
    """Another precision, runtime or number of threads is another case: left out on both sides, and reported."""
    for other in (
        {"precision": "int8"},
        {"runtime": "litert"},
        {"threads": 4},
        {"scenario": "offline"},
        {"data": "0b" * 32},
        {"model": "b"},
    ):
        with table_row(other):
            before = [*make_side(agent="1", **other), *make_side(agent="1", start=50, model="c")]
            result = reviewed(before, make_side(agent="2", start=100))
            assert (result.pairs, result.choice) == ((), None)
            assert [case.side for case in result.left_out] == ["after", "before", "before"]


def test_another_board_is_no_baseline_and_another_unit_of_the_same_board_is_one():
    """Where no device is on both sides, boards of one type stand for each other, and the change is named."""
    result = reviewed(make_side(agent="1", device="pi-1"), make_side(agent="1", start=100, device="pi-2"))
    assert result.pairs[0].changed == ("device pi-1 to pi-2",)
    two = [*make_side(agent="1", device="pi-1"), *make_side(agent="1", start=50, device="pi-2", factor=2.0)]
    result = reviewed(two, make_side(agent="2", start=100, device="pi-2", factor=2.0))
    assert result.pairs[0].ratios.p50 == pytest.approx(1, abs=0.02)


def test_runs_on_both_sides_and_a_limit_that_is_none_are_refused():
    """The same ledger twice would compare each run with itself; a gate with a typing error must not pass."""
    runs = make_side(agent="1")
    with pytest.raises(ConfigError, match="on both sides"):
        reviewed(runs, runs)
    for text in ("", "slower", "slower:3", "ap:1%", "slower:x%", "faster:3%", "slower:-1%", "slower:nan%", "energy:5%,"):
        with table_row(text), pytest.raises(ConfigError, match=r"slower:3%,energy:5%,ap:0\.5"):
            gate.parse(text)


def test_a_comment_begins_with_its_mark_and_the_verdict_and_the_worst_case():
    """So that it can be found again, and read in a second."""
    before = [*make_side(agent="1"), *make_side(agent="1", start=50, model="other")]
    after = [*make_side(agent="2", start=100), *make_side(agent="2", start=150, model="other", factor=1.2)]
    result = reviewed(before, after)
    text = review_document.to_markdown(result, gate.judge(result, gate.parse(LIMITS)))
    lines = text.splitlines()
    assert lines[0] == review_document.MARK
    assert lines[1] == "### Edgemeter: **1 limit violated**, 2 cases compared: 1 worse, 1 alike"
    rows = [line for line in lines if line.startswith("| ") and "case" not in line]
    assert "other" in rows[0]
    assert "violates slower:3%" in rows[0]
    assert "violates" not in rows[1]
    assert "`slower:3%`: 1 violated, 1 kept, 0 not judged" in text


@pytest.mark.nightly
def test_a_comment_is_never_too_long_to_post():
    """2,000 cases: the worst come first, the others are counted."""
    pairs = []
    for number in range(2000):
        pairs += [
            make_side(agent="1", runs=1, start=number, model=f"m{number}"),
            make_side(agent="2", runs=1, start=9000 + number, model=f"m{number}"),
        ]
    result = reviewed([run for side in pairs[::2] for run in side], [run for side in pairs[1::2] for run in side])
    text = review_document.to_markdown(result, gate.judge(result, gate.parse(LIMITS)))
    assert len(text) < 65_536
    assert "more cases do not fit" in text


def test_texts_from_devices_are_only_text_in_a_comment():
    """No table is broken, nobody is mentioned, no page and no image is linked."""
    odd = "odd: a|b <img src=x> `c` @someone ![x](http://x)\n# head"
    after = make_side(agent="2 @all|x", start=100, verdict=violating("invalid", odd))
    result = reviewed(make_side(agent="1"), [*after, *make_side(agent="2 @all|x", start=200)])
    text = review_document.to_markdown(result, ())
    body = text.split("\n", 1)[1]
    assert not re.search(r"@(someone|all)|<img|!\[|\n# head", body)
    for line in body.splitlines():
        if line.startswith("| "):
            assert line.count("|") == 6


def test_a_side_is_a_ledger_a_document_a_bundle_or_a_folder_narrowed_by_selectors(tmp_path):
    """What a file is, its first bytes say."""
    runs = [*make_side(agent="1", runs=2), *make_side(agent="2", runs=3, start=86_400, device="pi-2")]
    path, printed, folder = tmp_path / "ledger.sqlite", tmp_path / "runs.json", tmp_path / "bundles"
    fill(path, runs)
    printed.write_bytes(document(*runs))
    folder.mkdir()
    write_bundle(folder)
    for where in (path, printed):
        assert len(read_side(str(where)).runs) == 5
        assert len(read_side(f"{where}?device=pi-2").runs) == 3
        assert len(read_side(f"{where}?agent=1&model=tiny-detector").runs) == 2
        assert len(read_side(f"{where}?since=2024-10-05").runs) == 3
        assert len(read_side(f"{where}?until=2024-10-05").runs) == 2
    assert len(read_side(str(folder)).runs) == 1
    assert len(read_side(str(next(folder.iterdir()))).runs) == 1


def test_a_selector_that_selects_nothing_is_refused(tmp_path):
    """A typing error must not become an empty baseline."""
    path = tmp_path / "runs.json"
    path.write_bytes(document(*make_side(agent="1", runs=1)))
    for selector in ("?x=1", "?", "?device", "?since=yesterday", "?device=nobody"):
        with table_row(selector), pytest.raises(ConfigError, match=r"selector|not a time|to compare"):
            read_side(f"{path}{selector}")


def test_the_command_prints_the_comment_and_fails_where_a_limit_is_violated(tmp_path):
    """Exit status 1 with the comment on standard output; 0 where all is well; 2 for wrong usage."""
    before, after, same = (tmp_path / f"{name}.json" for name in ("before", "after", "same"))
    before.write_bytes(document(*make_side(agent="1")))
    after.write_bytes(document(*make_side(agent="2", start=100, factor=1.2)))
    same.write_bytes(document(*make_side(agent="2", start=100, seed=9)))
    run = CliRunner().invoke
    violated = run(cli, ["compare", str(before), str(after), "--format", "markdown", "--fail-on", LIMITS])
    assert (violated.exit_code, violated.stdout.splitlines()[0]) == (1, review_document.MARK)
    assert run(cli, ["compare", str(before), str(same), "--format", "markdown", "--fail-on", LIMITS]).exit_code == 0
    assert run(cli, ["compare", str(before), str(after)]).exit_code == 0
    document_of_review = json.loads(run(cli, ["compare", str(before), str(after), "--format", "json", "--fail-on", LIMITS]).stdout)
    assert document_of_review["is_broken"] is True
    assert document_of_review["pairs"][0]["latency_p50_ms_ratio"]["value"] == pytest.approx(1.2, rel=0.02)
    for wrong in ([str(before)], [str(before), str(after), "--reference", "x"], ["--fail-on", LIMITS]):
        assert run(cli, ["compare", *wrong]).exit_code == 2


def test_of_two_cases_that_are_called_alike_only_the_one_that_violates_the_limit_is_blamed():
    """The same model with 1 thread and with 4: each has a name of its own, and its own findings."""
    before = [*make_side(agent="1", threads=1), *make_side(agent="1", start=50, threads=4)]
    after = [*make_side(agent="2", start=100, threads=1), *make_side(agent="2", start=150, threads=4, factor=1.3)]
    result = reviewed(before, after)
    assert sorted(pair.name.rpartition(", ")[2] for pair in result.pairs) == ["1 thread", "4 threads"]
    text = review_document.to_markdown(result, gate.judge(result, gate.parse("slower:3%")))
    single, four = (
        next(line for line in text.splitlines() if line.startswith("| ") and threads in line) for threads in ("1 thread", "4 threads")
    )
    assert "violates" in four
    assert "violates" not in single
    assert result.left_out == ()


def test_the_baseline_is_the_level_that_it_had_at_its_end():
    """A baseline of sixty days that became 10% slower on day 40, and a new side as slow: kept; of all days nothing is settled."""
    before = level_runs(stepped_ms(60, 40, 1.1))
    after = level_runs(stepped_ms(20, 0, 1.1, seed=2), [60 + day for day in range(20)], seq=60)
    sides = ("before", StoreContents(before)), ("after", StoreContents(after))
    result = review(*sides)
    (pair,) = result.pairs
    assert pair.baseline.segment.earlier == 40
    assert pair.ratios.intervals.get("latency_p50_ms")[0] < 1 < pair.ratios.intervals.get("latency_p50_ms")[1]
    assert gate.state_of(gate.judge(result, gate.parse("slower:3%"))) == "open"
    assert "baseline since 2024-11-13" in review_document.to_markdown(result, ())
    assert "--all-days" in "\n".join(review_document.review_lines(result, ()))
    assert gate.state_of(gate.judge(review(*sides, days="all"), gate.parse("slower:3%"))) == "could not judge"
    assert "a step is suspected on 2024-11-13: the ratio is of both levels" in review_document.to_markdown(review(*sides, days="all"), ())


def test_speed_and_energy_are_not_gated_across_two_boards_of_one_type():
    """Boards that differ by 4% and a change that does nothing: refused with the remedy; memory and accuracy are judged as ever."""
    result = reviewed(make_side(agent="1", device="pi-1"), make_side(agent="2", start=100, device="pi-2", factor=1.04))
    for limit in ("slower:3%", "ap:0.5,energy:5%"):
        with pytest.raises(ConfigError, match=r"cannot be judged across two boards \(pi-1 and pi-2\).*measure both sides on one board"):
            gate.judge(result, gate.parse(limit))
    assert {finding.outcome for finding in gate.judge(result, gate.parse("ap:0.5,memory:10%"))} == {"kept"}
    assert gate.judge(reviewed(make_side(agent="1"), make_side(agent="2", start=100)), gate.parse("slower:3%"))[0].outcome == "kept"


def written(tmp_path, **sides):
    """Return the paths of documents of runs."""
    for name, runs in sides.items():
        (tmp_path / f"{name}.json").write_bytes(document(*runs))
    return [str(tmp_path / f"{name}.json") for name in sides]


def run_compare(*arguments):
    """Return what `edgemeter compare` prints; it ends with status 0."""
    outcome = CliRunner().invoke(cli, ["compare", *arguments], catch_exceptions=False)
    assert outcome.exit_code == 0
    return outcome.stdout


def test_two_models_that_were_measured_before_are_chosen_between(tmp_path):
    """One case a side, and not the same: no baseline of each other, but a sentence; no limit is judged of them."""
    fp32 = make_side(agent="1", ap=0.625)
    int8 = make_side(agent="1", factor=0.7, energy_factor=0.77, ap=0.588, start=100, seed=2, precision="int8", model="other")
    paths = written(tmp_path, a=fp32, b=int8)
    answer = run_compare(*paths).splitlines()[0]
    assert answer.startswith("B is 1.4")
    document_of_review = json.loads(run_compare(*paths, "--format", "json"))
    assert (document_of_review["pairs"], document_of_review["left_out"]) == ([], [])
    assert document_of_review["choice"]["sentence"] == answer.rstrip(".")
    assert document_of_review["choice"]["marks"] == ["other precision: int8 against fp32", "other class of precision: int8 against fp32"]
    comment = run_compare(*paths, "--format", "markdown")
    assert f"### Edgemeter: {answer}" in comment
    assert "| A | tiny-detector fp32 on onnx | 8 |" in comment
    assert "Left out" not in comment
    assert CliRunner().invoke(cli, ["compare", *paths, "--fail-on", "slower:3%"]).exit_code == 1


def test_what_has_nothing_in_common_is_no_choice(tmp_path):
    """Another scenario, or another type of board."""
    for other in ({"scenario": "offline"}, {"device": "srv", "environment": make_environment(board="another")}):
        with table_row(other):
            paths = written(tmp_path, a=make_side(agent="1"), b=make_side(agent="1", start=100, model="other", **other))
            assert json.loads(CliRunner().invoke(cli, ["compare", *paths, "--format", "json"]).stdout)["choice"] is None
            outcome = CliRunner().invoke(cli, ["compare", *paths])
            # A caller in CI must not read it as good.
            assert (outcome.exit_code, outcome.stdout.splitlines()[0].partition(":")[0]) == (1, "nothing was compared")
