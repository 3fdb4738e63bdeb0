import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract.figures import figure
from edgemeter.collector.runs.figure_names import figure_called, with_part
from tests.fixtures.rows import table_row


def test_a_figure_is_called_by_its_name_its_stem_its_title_or_its_metric():
    """Any case is valid, with blanks, hyphens or underscores, and as sentences call it."""
    for text, name in (
        ("latency_p99_ms", "latency_p99_ms"),
        ("latency-p99", "latency_p99_ms"),
        ("P99", "latency_p99_ms"),
        ("latency", "latency_p50_ms"),
        ("missed frames", "steady_missed_ratio"),
        ("ttft", "generation_ttft_p50_ms"),
        ("net energy", "energy_net_mj"),
        ("ap", "accuracy_value"),
        ("Top-1", "accuracy_value"),
        ("accuracy", "accuracy_value"),
    ):
        with table_row(text):
            assert figure_called(text).name == name


def test_who_calls_a_figure_by_no_name_of_it_is_told_the_titles():
    """The error lists only the titles of the figures that may be meant."""
    with pytest.raises(
        ConfigError, match="'speed' is not a figure: there are p50, latency, energy"
    ):
        figure_called("speed", (figure("latency_p50_ms"), figure("energy_gross_mj")))


def test_the_part_of_a_figure_stands_before_its_unit():
    """A comparison has it so, for example in `latency_p50_low_ms`."""
    for name, expected in (
        ("latency_p50_ms", "latency_p50_low_ms"),
        ("throughput_per_s", "throughput_low_per_s"),
        ("accuracy_value", "accuracy_value_low"),
    ):
        with table_row(name):
            assert with_part(name, "_low") == expected
