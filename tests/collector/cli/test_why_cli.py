"""The command `edgemeter runs why`, and the views that predictions do not belong in."""

import itertools
import json

import msgspec
import pytest

from edgemeter.agent.contract.kept_predictions import fitted
from tests.fixtures.command import edgemeter
from tests.fixtures.comparison_factory import make_run
from tests.fixtures.kept_factory import kept_answers, kept_of, random_kept, thing
from tests.fixtures.ledgers import fill
from tests.fixtures.point_lines import point_line
from tests.fixtures.rows import table_row

REFERENCE, DEVICE, CLASSIFIER, BARE = ("a" * 32, "b" * 32, "c" * 32, "d" * 32)


@pytest.fixture
def runs(tmp_path, monkeypatch):
    """Return the runs in this machine's ledger, by id: two detectors on the same photographs, a classifier, and one without predictions."""
    monkeypatch.setenv("EDGEMETER_HOME", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "140")
    monkeypatch.chdir(tmp_path)
    kept_by = {REFERENCE: random_kept(1), DEVICE: random_kept(2, blur_px=9.0), CLASSIFIER: kept_answers(("cat", "dog", 0.75)), BARE: None}
    measured = [
        make_run(id=run_id, seq=number, predictions=fitted(predictions) if predictions else None)
        for number, (run_id, predictions) in enumerate(kept_by.items(), 1)
    ]
    fill(tmp_path / "ledger.sqlite", measured)
    return {run.id: run for run in measured}


def rows_of(text, heading):
    """Return the cells of the table whose heading begins so, by the first cell of each row."""
    lines = text.splitlines()
    first = next(index for index, line in enumerate(lines) if line.startswith(heading))
    names = lines[first].split()
    rows = itertools.takewhile(lambda cells: len(cells) >= len(names), map(str.split, lines[first + 1 :]))
    return {cells[0]: dict(zip(names, cells, strict=False)) for cells in rows}


@pytest.mark.usefixtures("runs")
def test_two_runs_are_compared_object_by_object():
    """The table has the figures of the JSON: kinds by size, classes, the ten worst photographs."""
    document = json.loads(edgemeter("runs", "why", REFERENCE[:8], DEVICE[:8], "--score", "0.3", "--json").stdout)
    assert (document["reference"], document["device"], document["score"]) == (REFERENCE, DEVICE, 0.3)
    assert len(document["photographs"]) == 60
    printed = edgemeter("runs", "why", REFERENCE[:8], DEVICE[:8], "--score", "0.3").stdout
    assert printed.startswith(f"reference: run {REFERENCE[:8]}, ")
    kinds = rows_of(printed, "kind")
    for kind, count in document["counts"].items():
        assert kinds[kind]["all"] == str(count)
        assert kinds[kind]["small"] == str(document["by_size"]["small"].get(kind, "-"))
    assert f"{document['lowered']} of {document['counts']['missed']} missed are found by the device with a lower score" in printed
    assert rows_of(printed, "class")["owl"]["missed"] == str(document["by_label"]["owl"]["missed"])
    worst = rows_of(printed.replace("worst photographs", "worst-photographs"), "worst-photographs")
    assert list(worst) == [photo["name"] for photo in document["photographs"][:10]]
    first = document["photographs"][0]
    missed = {mark["thing"] for mark in first["marks"] if mark["kind"] == "missed"}
    assert worst[first["name"]]["missed"] == (str(len(missed)) if missed else "-")


@pytest.mark.usefixtures("runs")
def test_one_run_is_analysed():
    """Thresholds, mistakes and calibration; JSON has the whole matrix and every curve."""
    document = json.loads(edgemeter("runs", "why", REFERENCE, "--json").stdout)
    assert [curve["label"] for curve in document["curves"]] == [None, "cat", "dog", "owl", "fox"]
    assert [len(row) for row in document["confusion"]["counts"]] == [5] * 5
    printed = edgemeter("runs", "why", REFERENCE)
    (best,) = (threshold for threshold in document["thresholds"] if threshold["label"] == "owl")
    row = rows_of(printed.stdout, "class")["owl"]
    assert (row["score"], row["missed"], row["f1"]) == (f"{best['score']:.3f}", str(best["missed"]), f"{best['f1']:.3f}")
    assert f"calibration error {document['calibration']['error']:.3f} (95% {document['calibration']['low']:.3f} to " in printed.stdout
    classified = edgemeter("runs", "why", CLASSIFIER).stdout
    assert rows_of(classified, "annotated")["cat"] == {"annotated": "cat", "predicted": "dog", "times": "1"}
    assert "no bounds: too few: 1 items with predictions, bounds need 20" in classified


@pytest.mark.usefixtures("runs")
def test_runs_without_comparable_predictions_are_refused():
    """Without predictions, of another task, three of them, an unknown one: one line, status 2."""
    for words, message in (
        ([BARE], "keeps no predictions: measure it with --keep-predictions"),
        ([REFERENCE, BARE], "keeps no predictions: measure it with --keep-predictions"),
        ([REFERENCE, CLASSIFIER], "one of the runs is of a detector, the other of a classifier"),
        ([REFERENCE, DEVICE, CLASSIFIER], "give one run, or two to compare, not 3"),
        (["f" * 32], "no run's id begins with"),
    ):
        with table_row(message):
            outcome = edgemeter("runs", "why", *words)
            assert (outcome.returncode, outcome.stdout) == (2, "")
            assert message in outcome.stderr


def test_predictions_are_shown_as_a_count_and_are_in_no_table(runs):
    """`runs show` says how many there are and which command looks into them; neither CSV nor an InfluxDB gets them."""
    run = runs[REFERENCE]
    assert (
        f"predictions kept: 60 of 80 photographs; see `edgemeter runs why {REFERENCE[:8]}`" in edgemeter("runs", "show", REFERENCE).stdout
    )
    table = edgemeter("runs", "export", REFERENCE, "-o", "-").stdout
    assert table.count("\n") == 2
    for text in (table, point_line(run)):
        assert run.predictions.data[:40] not in text
        assert "predictions_data" not in text


def test_names_and_labels_cannot_draw_on_the_terminal(runs, tmp_path):
    """Escape sequences in what annotations call things are shown, not obeyed."""
    hostile = msgspec.structs.replace(
        kept_of(([thing("cat", 0)], []), ([thing("dog", 0)], [])), labels=("\x1b[31mcat", "dog", "owl", "fox")
    )
    photo = msgspec.structs.replace(hostile.photographs[0], name="\x1b]0;x\x07.png")
    hostile = msgspec.structs.replace(hostile, photographs=(photo, hostile.photographs[1]))
    detected = msgspec.structs.replace(
        hostile, photographs=tuple(msgspec.structs.replace(photo, found=(thing("cat", 0, score=0.9),)) for photo in hostile.photographs)
    )
    sides = [
        make_run(id=f"{number:032x}", seq=10 + number, predictions=fitted(side)) for number, side in enumerate((detected, hostile), 10)
    ]
    fill(tmp_path / "ledger.sqlite", [*runs.values(), *sides])
    for words in ([sides[0].id, sides[1].id], [sides[0].id]):
        printed = edgemeter("runs", "why", *words).stdout
        assert "cat" in printed
        assert "\x1b" not in printed
