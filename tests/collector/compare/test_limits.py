"""Test limits as people write them: names, signs and units of the table of figures.

An error says what is right.
"""

import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.collector.compare.limits import parse_gate, parse_requirements, selected
from edgemeter.collector.runs.figure_names import EXAMPLE, JUDGED
from tests.fixtures.comparison_factory import make_run, summarised
from tests.fixtures.record_factory import make_environment
from tests.fixtures.rows import table_row


def test_the_example_of_the_help_is_read():
    """The example has three figures with units, an accuracy by its metric, and the board."""
    limits = parse_requirements(EXAMPLE)
    assert [
        (limit.figure.name, limit.side, limit.value, limit.metric) for limit in limits.figures
    ] == [
        ("latency_p99_ms", "at most", 33.0, ""),
        ("accuracy_value", "at least", 0.74, "AP"),
        ("energy_gross_mj", "at most", 60.0, ""),
        ("memory_peak_mb", "at most", 500.0, ""),
    ]
    assert [condition.text for condition in limits.conditions] == ["board=Raspberry Pi 5"]


def test_units_are_converted_exactly():
    """Binary fractions are not rounded: 0.033 s is 33 ms, not 33.000000000000004."""
    for text, value in (
        ("p99<=0.033s", 33.0),
        ("p99<=33000us", 33.0),
        ("p99<=33", 33.0),
        ("energy<=.06J", 60.0),
        ("energy per token<=0.5 J/token", 500.0),
        ("memory<=0.5GB", 500.0),
        ("memory<=1GiB", 1073.741824),
        ("ap>=74%", 0.74),
        ("throughput>=30/s", 30.0),
    ):
        with table_row(text):
            (limit,) = parse_requirements(text).figures
            assert limit.value == value


def test_every_figure_is_limited_under_every_name_of_the_table():
    """The name is valid in options, and as a field of the page where the side is the better one."""
    for name, entry in JUDGED.items():
        with table_row(name):
            (limit,) = parse_requirements(
                f"{name}{'<=' if entry.better == 'lower' else '>='}.5"
            ).figures
            assert (limit.figure, limit.side) == (
                entry,
                "at most" if entry.better == "lower" else "at least",
            )
            assert parse_requirements(limit.text).figures == (limit,)


def test_what_is_no_limit_is_refused():
    """Wrong units or signs and absent numbers are refused; an unknown name is corrected."""
    for text, words in (
        ("p59<=33ms", "did you mean p99"),
        ("latenzy<=33ms", r"did you mean latency\?"),
        ("bord=Raspberry Pi 5", r"did you mean board\?"),
        ("p99<=33mJ", "not in mJ"),
        ("p99>=33ms", "p99<=33ms"),
        ("p99<=fast", "no number"),
        ("accuracy>=30", r"lies between 0 and 1: write accuracy>=0\.3, or 30%"),
        ("ap>=30", r"lies between 0 and 1: write ap>=0\.3, or 30%"),
    ):
        with table_row(text), pytest.raises(ConfigError, match=words):
            parse_requirements(text)


def test_a_board_is_selected_by_the_beginning_of_its_name():
    """`Raspberry Pi 5` selects every revision of it, but not a Raspberry Pi 500.

    A name that is not there is corrected.
    """
    boards = ("Raspberry Pi 5 Model B Rev 1.0", "Raspberry Pi 500", "NVIDIA Jetson Orin Nano")
    runs = [
        make_run(f"d-{index}", id=str(index), environment=make_environment(board=board))
        for index, board in enumerate(boards)
    ]
    cases = summarised(runs)
    (case,) = selected(cases, parse_requirements("board=raspberry pi 5").conditions)
    assert case.around.environment["board"] == boards[0]
    with pytest.raises(ConfigError, match=r"no case has board=Raspbery Pi 4: did you mean"):
        selected(cases, parse_requirements("board=Raspbery Pi 4").conditions)


def test_a_gate_with_a_typing_error_does_not_pass():
    """A text that is no limit of a change is refused with an example.

    Energy and accuracy have their own units.
    """
    assert [(limit.figure, limit.by) for limit in parse_gate("slower:3%,energy:5%,ap:0.5")] == [
        ("slower", 0.03),
        ("energy_gross_mj", 0.05),
        ("accuracy_value", 0.005),
    ]
    for text in (
        "",
        "slower",
        "slower:3",
        "ap:1%",
        "slower:x%",
        "faster:3%",
        "slower:-1%",
        "slower:nan%",
        "energy:5%,x",
    ):
        with table_row(text), pytest.raises(ConfigError, match=r"slower:3%,energy:5%,ap:0\.5"):
            parse_gate(text)
    with pytest.raises(ConfigError, match=r"did you mean slower\?"):
        parse_gate("slowr:3%")


def test_a_limit_takes_the_words_of_the_sentence():
    """A reader of the word latency may write latency: it is p50."""
    (limit,) = parse_requirements("latency<=33ms").figures
    assert limit.figure.name == parse_gate("latency:3%")[0].figure == "latency_p50_ms"
