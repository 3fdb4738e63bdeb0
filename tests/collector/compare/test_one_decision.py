"""One pair of cases through every view: the sentence, the tables, JSON, CSV, the limits, the comment and the page say the same of it."""

import csv
import io
import json

import msgspec
from click.testing import CliRunner

from edgemeter.agent.cli.main import cli
from edgemeter.collector.compare.judged_figures import JUDGED
from tests.fixtures.comparison_factory import document
from tests.fixtures.level_factory import level_runs, stepped_ms
from tests.fixtures.record_factory import make_accuracy
from tests.fixtures.review_runs import make_side

BASELINE_MS, BASELINE_AP = 10.0, 0.6
PERHAPS = ", perhaps by less than the 3% that matter"


def latencies_ms(interval):
    """Return p50s whose ratio to runs that do not scatter has that interval: of five their range, widened by a twentieth each way."""
    if interval is None:
        return [BASELINE_MS * 1.01] * 2
    low, high = interval
    wider = (high / low) ** (0.05 / 1.1)
    ends = low * wider, high / wider
    return [BASELINE_MS * ratio for ratio in (ends[0], *[(low * high) ** 0.5] * 3, ends[1])]


def accuracy_of(interval):
    """Return an accuracy whose difference to an exact one has that interval, around its middle."""
    low, high = (BASELINE_AP + bound for bound in interval)
    return make_accuracy(value=(low + high) / 2, low=low, high=high)


def sides_of(latency, accuracy):
    """Return the runs of a case before and after a change, on one device."""
    exact = make_accuracy(value=BASELINE_AP, low=BASELINE_AP, high=BASELINE_AP)
    before_ms = [BASELINE_MS] * (2 if latency is None else 5)
    values = ((before_ms, exact, 0), (latencies_ms(latency), accuracy_of(accuracy), 100))
    return [
        [
            run
            for index, p50_ms in enumerate(p50s_ms)
            for run in make_side(agent=str(start), runs=1, spread=0, factor=p50_ms / 12.0, start=start + 86_400 * index, accuracy=scored)
        ]
        for p50s_ms, scored, start in values
    ]


def run(tmp_path, *arguments, **files):
    """Return how `edgemeter compare` of these runs ended."""
    for name, runs in files.items():
        (tmp_path / f"{name}.json").write_bytes(document(*runs))
    return CliRunner().invoke(cli, ["compare", *map(str, arguments)], catch_exceptions=False)


def reviewed(tmp_path, sides, *options):
    """Return what `edgemeter compare BASELINE NEW` prints."""
    return run(tmp_path, tmp_path / "a.json", tmp_path / "b.json", *options, a=sides[0], b=sides[1]).stdout


def compared(tmp_path, sides, *options):
    """Return what `edgemeter compare --reference` prints of the same figures, of a device against another."""
    of_reference = {"device": "server-1", "role": "reference"}
    runs = [*(msgspec.structs.replace(run_of_side, **of_reference) for run_of_side in sides[0]), *sides[1]]
    return run(tmp_path, "--reference", "reference", "--ledger", tmp_path / "both.json", *options, both=runs).stdout


def judged_line(printed, figure):
    """Return the words of the one judgement on a figure."""
    title = JUDGED[figure].title
    (line,) = [line.strip() for line in printed.splitlines() if line.startswith(f"    {title}: ")]
    return line.removeprefix(f"{title}: ")


def check_every_view(tmp_path, sides, figure, outcome, word, limit):
    """Assert what each view says of the figure of one pair."""
    printed = reviewed(tmp_path, sides, "--fail-on", limit)
    words = judged_line(printed, figure)
    assert words.startswith(word)
    (finding,) = [line for line in printed.splitlines() if line.startswith(f"limit {limit} ") and "tiny-detector" in line]
    assert words in finding
    document = json.loads(reviewed(tmp_path, sides, "--fail-on", limit, "--format", "json"))
    assert (document["pairs"][0]["verdicts"][figure], words in document["limits"][0]["words"]) == (words, True)
    comment = reviewed(tmp_path, sides, "--fail-on", limit, "--format", "markdown")
    assert f"<br>{word}: " in comment
    for state in ("violated", "not judged"):
        assert (f"  - {state}: tiny-detector" in comment) == (f" {state}: " in finding)

    assert judged_line(compared(tmp_path, sides, "--output", tmp_path / "page.html"), figure).startswith(word)
    assert f">{word}</small>" in (tmp_path / "page.html").read_text(encoding="utf-8")
    row = json.loads(compared(tmp_path, sides, "--format", "json"))["rows"][-1]
    (listed,) = list(csv.DictReader(io.StringIO(compared(tmp_path, sides, "--format", "csv"))))[1:]
    assert (row[f"{figure}_outcome"], listed[f"{figure}_outcome"]) == (outcome, outcome)
    assert row[f"{figure}_words"].startswith(word)


def test_every_view_shows_the_same_outcome(tmp_path):
    """Of a latency near the margin, of one without an interval, and of an accuracy, each with its limit."""
    check_every_view(tmp_path, sides_of((1.005, 1.06), (0, 0)), "latency_p50_ms", "higher", f"worse{PERHAPS}", "slower:3%")
    check_every_view(tmp_path, sides_of(None, (0, 0)), "latency_p50_ms", "not judged", "not judged", "slower:3%")
    check_every_view(tmp_path, sides_of((0.99, 1.01), (-0.02, -0.01)), "accuracy_value", "lower", "worse", "ap:0.5")


def test_a_suspected_step_is_named_in_every_view(tmp_path):
    """Twenty days, then seven 6% slower, against a level of 27 days: one sentence, wherever the ratio is."""
    words = "a step is suspected on 2024-10-24: the ratio is of both levels"
    sides = level_runs([10.0] * 27, seq=100), level_runs(stepped_ms(27, 20, 1.06, seed=4, level=10.4))
    assert reviewed(tmp_path, sides).count(words) == 2
    assert words in reviewed(tmp_path, sides, "--format", "markdown")
    assert words in json.loads(reviewed(tmp_path, sides, "--format", "json"))["pairs"][0]["verdicts"]["latency_p50_ms"]
    printed = compared(tmp_path, sides, "--output", tmp_path / "page.html")
    assert printed.count(words) == 2
    assert words in (tmp_path / "page.html").read_text(encoding="utf-8")
    row = json.loads(compared(tmp_path, sides, "--format", "json"))["rows"][-1]
    assert "step suspected" in row["marks"]
    assert words in row["latency_p50_ms_words"]
    assert row["latency_p50_ms_ratio_low"] < 1.04 < 1.04 * 1.06 < row["latency_p50_ms_ratio_high"]
