"""Facts about the table of a comparison on a terminal."""

import io
from collections import Counter

from rich.console import Console

from edgemeter.collector.show.compare_table import FEWEST_ROWS, ROWS_SHOWN, shortened, show_comparison
from tests.fixtures.comparison_factory import compare_runs, make_reference, make_run, no_energy
from tests.fixtures.record_factory import make_environment, make_generation
from tests.fixtures.rows import table_row


def printed(comparison, width=200):
    """Return the lines that a terminal of `width` shows."""
    out = io.StringIO()
    show_comparison(comparison, Console(file=out, width=width))
    return out.getvalue().splitlines()


def line_with(lines, text):
    """Return the one line that holds `text`."""
    (line,) = [line for line in lines if text in line]
    return line


def test_no_line_of_the_table_is_wider_than_the_terminal():
    """Columns give way by rank; those that matter stay."""
    comparison = compare_runs(make_run(**no_energy()), make_reference(**no_energy()))
    for width in (60, 100, 200):
        with table_row(width):
            lines = printed(comparison, width)
            rows = [line for line in lines if "onnx 1.22.1" in line]
            assert len(rows) == 2
            assert all(len(line.rstrip()) <= max(width, 80) for line in rows)
            assert all(text in line_with(lines, "5.00x") for text in ("fp32", "10.0", "0.600", "ok"))


def test_language_models_have_their_rates():
    """Tokens per second stay on a narrow terminal; other models have no such column."""
    language = {"task": "generation", "ap": None, **no_energy()}
    runs = [
        make_run(generation=make_generation(decode_tokens_per_s=87.5), **language),
        make_reference(generation=make_generation(), **language),
    ]
    lines = printed(compare_runs(*runs), 80)
    assert "tg t/s" in lines[1]
    assert "87.5" in line_with(lines, "5.00x")
    assert not any("tg t/s" in line for line in printed(compare_runs(make_run(), make_reference())))


def test_text_of_a_record_is_neither_markup_nor_an_escape_sequence():
    """A device cannot colour, clear or retitle the reader's terminal."""
    hostile = "[bold red]x[/] \x1b]0;title\x07 \x1b[2J"
    runs = [make_run(environment=make_environment(power_mode=hostile), **no_energy(hostile)), make_reference()]
    text = "\n".join(printed(compare_runs(*runs)))
    assert "\x1b" not in text
    assert "\x07" not in text
    assert "[bold red]x[/]" in text


def test_of_hundreds_of_cases_as_many_are_shown_as_anybody_reads():
    """The reference first, of each model; the comparison itself keeps all."""
    runs = [make_run(f"pi-{number:03}", model=model) for number in range(100) for model in ("a", "b")]
    comparison = compare_runs(*runs, make_reference(model="a"), make_reference(model="b"))
    short = shortened(comparison)
    assert (len(comparison.rows), len(short.rows)) == (202, 2 * ROWS_SHOWN)
    assert [row.case.key.model for row in short.rows if row.is_reference] == ["a", "b"]
    assert shortened(short) == short


def test_of_many_groups_each_has_some_rows():
    """What is printed of a fleet fits on a few screens, however many models it runs."""
    models = [f"model-{number:02}" for number in range(10)]
    runs = [make_run(f"pi-{number:03}", model=model) for number in range(20) for model in models]
    short = shortened(compare_runs(*runs, *(make_reference(model=model) for model in models)))
    assert Counter(row.case.key.model for row in short.rows) == dict.fromkeys(models, FEWEST_ROWS)
    assert shortened(short) == short


def test_the_rows_that_are_shown_differ_most_from_the_reference():
    """Much slower or much faster, in the order in which all rows stand; a case that is not ranked gives way."""
    usual = [make_run(f"pi-{number:03}", p50_ms=10.0) for number in range(2 * ROWS_SHOWN)]
    runs = [*usual, make_run("pi-900", p50_ms=80.0), make_run("pi-901", p50_ms=0.1), make_run("pi-902", p50_ms=500.0, ap=0.1)]
    devices = [row.case.key.device for row in shortened(compare_runs(*runs, make_reference())).rows]
    assert len(devices) == ROWS_SHOWN
    assert (devices[0], *devices[-2:]) == ("server-1", "pi-900", "pi-901")
    assert devices[1:] == sorted(devices[1:])
