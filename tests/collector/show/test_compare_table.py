import io
import re
from collections import Counter

from msgspec import structs

from edgemeter.agent.base.console import Console
from edgemeter.agent.base.terminal import wide_console
from edgemeter.collector.show.compare_table import (
    FEWEST_ROWS,
    ROWS_SHOWN,
    shortened,
    show_comparison,
)
from tests.fixtures.compared_cases import changed, comparisons, in_turn, language_runs
from tests.fixtures.comparison_factory import compare_runs, make_reference, make_run, no_energy
from tests.fixtures.record_factory import make_environment, violating
from tests.fixtures.rows import table_row
from tests.fixtures.side_factory import make_side
from tests.fixtures.snapshot import same_as_snapshot


def printed(comparison, width=200):
    out = io.StringIO()
    show_comparison(comparison, Console(file=out, width=width))
    return out.getvalue().splitlines()


def test_each_comparison_has_its_table():
    """The table has at most 100 columns, with latency, accuracy and energy first.

    Below it are the choice, the outcome of limits, and notes.
    """
    texts = [
        f"## {name}\n" + "".join(f"{line.rstrip()}\n" for line in printed(comparison, 100))
        for name, comparison in comparisons()
    ]
    same_as_snapshot("comparison-tables", "\n".join(texts))


def test_no_line_of_a_table_is_wider_than_the_terminal():
    """Columns give way by rank; those that matter stay."""
    for name, comparison in comparisons():
        for width in (80, 100, 300):
            with table_row(name, width):
                lines = printed(comparison, width)
                tables = [index for index, line in enumerate(lines) if line.startswith("─")]
                assert all(
                    len(line.rstrip()) <= min(width, 100)
                    for index in tables
                    for line in lines[index - 1 : index + 2]
                )


def test_a_narrow_terminal_keeps_latency_accuracy_and_energy():
    """The column of the memory goes first."""
    (comparison,) = [
        comparison for name, comparison in comparisons() if name == "faster and less accurate"
    ]
    heading = next(line for line in printed(comparison, 80) if "p50 ms" in line)
    assert heading.split() == ["model", "p50", "ms", "AP", "mJ", "runs"]


def test_a_full_table_keeps_names_speeds_and_verdicts():
    """Five cases have long names, energies and a disturbed one.

    Omissions are stated, and no two names are alike.
    """
    name = "efficientdet_lite{}_int8_per_channel_metadata_2018_06_29.tflite"
    busy = {"verdict": violating("disturbed", "busy-machine")}
    detectors = [
        make_side(agent="1", seed=number, factor=number, model=name.format(number), **busy)
        for number in range(1, 6)
    ]
    texts = [
        language_runs(number, 100.0 * number, 20.0, model=f"Qwen2.5-{number}B-Instruct", **busy)
        for number in range(1, 6)
    ]
    for sides, speed in ((detectors, "p50 ms"), (texts, "tg 11 t/s")):
        for width in (80, 100):
            with table_row(speed, width):
                lines = printed(in_turn(*sides), width)
                begin = next(index for index, line in enumerate(lines) if speed in line)
                heading, rows = lines[begin], lines[begin + 2 : begin + 7]
                assert [row.split()[0] for row in rows] == list("ABCDE")
                assert len({row.split()[1] for row in rows}) == 5
                assert heading.rstrip().endswith("verdict")
                assert all(row.rstrip().endswith("disturbed") for row in rows)
                caption = " ".join(" ".join(lines[begin + 7 : lines.index("", begin)]).split())
                assert re.fullmatch(
                    r"left out: .*memory MB, runs \(--format csv shows them\)", caption
                )


def test_one_line_says_what_changes_between_days_include():
    """Changes within a session have no such line."""
    for later_s, between in (
        (100, ""),
        (2 * 86_400, "changes between days include an assumed scatter of 2% between days"),
    ):
        with table_row(between):
            lines = printed(
                changed(make_side(agent="1"), make_side(agent="2", seed=2, start=later_s), "")
            )
            assert [
                line for line in lines if "assume" in line and not line.startswith("Values")
            ] == [between] * bool(between)


def test_the_same_requests_with_one_output_token_show_the_energy_of_decoding():
    """60 mJ and 15 mJ of eleven tokens and one give 4.5 mJ for each of ten more.

    The energy per token of the two is not compared.
    """
    prefill = language_runs(2, 100.0, 20.0, energy_factor=0.25, spread=0.0)
    prefill = [
        structs.replace(run, generation=structs.replace(run.generation, output_tokens=1))
        for run in prefill
    ]
    lines = printed(in_turn(language_runs(1, 100.0, 20.0, spread=0.0), prefill))
    (decoding,) = [line for line in lines if "decoding takes" in line]
    assert (
        "512+11: decoding takes 4.50 ± 0.14 mJ/token (difference of the runs with 11 and 1 "
        "output tokens)"
    ) in decoding
    assert any(line.startswith("not compared: energy per token: ") for line in lines)


def test_no_sign_is_explained_that_the_table_lacks():
    """Wide intervals have no ±, and neither have those of a case by itself."""
    sides = [
        make_side(agent="1", seed=seed, runs=3, spread=0.3, precision=precision)
        for seed, precision in ((1, "fp32"), (2, "int8"))
    ]
    text = "\n".join(printed(in_turn(*sides)))
    assert (
        "changes come from pairs of neighbouring runs; intervals in the table come "
        "from one case alone"
    ) in text
    assert "±" not in text


def test_two_cases_of_which_each_is_better_in_part_are_told_how_to_choose():
    """Where no figure is worse, the reader is not asked to choose."""
    base = make_side(agent="1")
    for of_other, is_told in (
        ({"factor": 0.5, "ap": 0.6}, True),
        ({"factor": 0.5, "energy_factor": 2}, True),
        ({"factor": 0.5}, False),
    ):
        with table_row(is_told):
            lines = printed(
                in_turn(base, make_side(agent="1", seed=2, precision="int8", **of_other))
            )
            assert is_told == (
                "some figures are better and others worse: choose with --require or --cheapest"
                in map(str.strip, lines)
            )


def test_the_memory_that_no_limit_decides_is_in_parentheses():
    """The memory is no part of the answer unless it has a limit."""
    less = [
        structs.replace(run, memory=structs.replace(run.memory, peak_mb=0.7 * run.memory.peak_mb))
        for run in make_side(agent="2")
    ]
    after = [structs.replace(run, started_at_ns=run.started_at_ns + 10**15) for run in less]
    for limits, cell in (("slower:5%", "(-30%)"), ("memory:5%", "-30%")):
        row = next(
            line
            for line in printed(changed(make_side(agent="1"), after, limits))
            if line.startswith("new")
        )
        assert cell in row.split()


def test_a_piped_table_is_as_wide_as_a_terminal_s(capsys):
    """A piped table has a line a case, for grep and awk."""
    (comparison,) = [comparison for name, comparison in comparisons() if name == "much slower"]
    show_comparison(comparison, wide_console())
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines[3:5]] == [["A", "detector"], ["B", "large"]]


def test_text_of_a_record_is_neither_markup_nor_an_escape_sequence():
    """A device cannot colour, clear or retitle the reader's terminal."""
    hostile = "[bold red]x[/] \x1b]0;title\x07 \x1b[2J"
    runs = [
        make_run(environment=make_environment(power_mode=hostile), **no_energy(hostile)),
        make_reference(),
    ]
    text = "\n".join(printed(compare_runs(*runs)))
    assert "\x1b" not in text
    assert "\x07" not in text
    assert "[bold red]x[/]" in text


def test_of_hundreds_of_cases_as_many_are_shown_as_anybody_reads():
    """The reference of each model comes first; the comparison itself keeps all."""
    runs = [
        make_run(f"pi-{number:03}", model=model) for number in range(100) for model in ("a", "b")
    ]
    comparison = compare_runs(*runs, make_reference(model="a"), make_reference(model="b"))
    short = shortened(comparison)
    assert (len(comparison.rows), len(short.rows)) == (202, 2 * ROWS_SHOWN)
    assert [row.case.key.model for row in short.rows if row.is_reference] == ["a", "b"]
    assert shortened(short) == short


def test_of_many_groups_each_has_some_rows():
    """The output of a fleet fits on a few screens, however many models it runs."""
    models = [f"model-{number:02}" for number in range(10)]
    runs = [make_run(f"pi-{number:03}", model=model) for number in range(20) for model in models]
    short = shortened(compare_runs(*runs, *(make_reference(model=model) for model in models)))
    assert Counter(row.case.key.model for row in short.rows) == dict.fromkeys(models, FEWEST_ROWS)
    assert shortened(short) == short


def test_the_rows_that_are_shown_differ_most_from_the_reference():
    """They are much slower or much faster, in the order of all rows.

    A case that is not ranked is left out first.
    """
    usual = [make_run(f"pi-{number:03}", p50_ms=10.0) for number in range(2 * ROWS_SHOWN)]
    runs = [
        *usual,
        make_run("pi-900", p50_ms=80.0),
        make_run("pi-901", p50_ms=0.1),
        make_run("pi-902", p50_ms=500.0, ap=0.1),
    ]
    devices = [row.case.key.device for row in shortened(compare_runs(*runs, make_reference())).rows]
    assert len(devices) == ROWS_SHOWN
    assert (devices[0], *devices[-2:]) == ("server-1", "pi-900", "pi-901")
    assert devices[1:] == sorted(devices[1:])
