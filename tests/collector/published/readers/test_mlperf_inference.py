import json

import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.collector.published import create, table_file
from edgemeter.collector.published.readers.mlperf_inference import SOURCE
from tests.fixtures.mlperf_factory import make_row
from tests.fixtures.published_pages import GIVEN, facts, page, read_page

NAME = "mlperf_inference.json"


def rows_of(scenario):
    """Return the rows of a scenario."""
    return [row for row in read_page("mlperf_inference", page(NAME)).rows if f", {scenario}," in row.conditions]


def test_a_throughput_is_that_of_its_scenario():
    """Of the whole system, by the submitter, with the entry's own address."""
    (row,) = rows_of("Offline")
    assert facts(row, "figure", "value", "unit", "model", "device") == ("throughput", 10000, "per s", "retinanet", "Server (8x GPU)")
    assert facts(row, "stated_by", "precision", "version") == ("vendor", "int8", "v5.1")
    assert row.address.startswith("https://github.com/mlcommons/")
    assert row.conditions == "5.1-0061, Someone, datacenter, closed, available, Offline, 8 x GPU"


def test_a_latency_is_the_percentile_that_its_scenario_reports():
    """SingleStream the 90th, MultiStream the 99th."""
    latency, energy = rows_of("SingleStream")
    assert facts(latency, "figure", "statistic", "canonical", "device") == ("latency-p90", "p90", (4.78, "ms"), "Mini PC")
    assert facts(energy, "figure", "value", "unit", "scope") == ("energy", 155.25, "mJ", "wall-ac")
    (multi,) = rows_of("MultiStream")
    assert facts(multi, "figure", "statistic", "canonical") == ("latency-p99", "p99", (20, "ms"))
    assert multi.conditions.endswith("CPU only submission")


def test_tokens_of_a_server_are_those_of_all_users():
    """Power is stated as power; no energy is derived of it."""
    tokens, power = rows_of("Server")
    assert facts(tokens, "figure", "value", "unit") == ("output-tokens", 5000, "tokens/s")
    assert facts(power, "figure", "value", "unit", "scope") == ("power", 700.5, "W", "wall-ac")


def test_every_row_is_marked_as_mlperfs():
    """Its results are compared with MLPerf results only."""
    assert {row.source for row in read_page("mlperf_inference", page(NAME)).rows} == {f"{SOURCE} v5.1"}
    assert SOURCE.startswith("MLPerf")


def test_what_is_left_out_is_named():
    """Results with errors, units that are not known, accuracies without a number of items, latencies without a percentile."""
    left_out = read_page("mlperf_inference", page(NAME)).left_out
    assert any("Performance_Units 'furlongs' are not known" in why for why in left_out)
    assert "file: 1 results that the round marks as faulty" in left_out
    assert "file: the accuracies of 3 results: over how many items is not stated" in left_out
    odd = json.dumps([make_row(Scenario="Other", Performance_Units="Latency (ms)")])
    assert any("a latency of which no percentile is known" in why for why in read_page("mlperf_inference", odd).left_out)


def test_a_round_is_recognised():
    """Other JSON is not."""
    reader = create("mlperf_inference")
    assert reader.recognises("summary_results.json", page(NAME))
    assert not reader.recognises("other.json", '[{"Scenario": 1}]')


def test_an_energy_of_a_query_of_eight_samples_is_left_out():
    """It would be eight times that of an inference; the latency says its batch."""
    multi = make_row(Scenario="MultiStream", Performance_Units="Latency (ms)", Power_Result=800.0, Power_Units="millijoules")
    table = read_page("mlperf_inference", json.dumps([multi]))
    assert [(row.figure, row.batch) for row in table.rows] == [("latency-p99", 8)]
    assert any("it is of a query of 8 samples" in why for why in table.left_out)


def test_an_inferred_result_is_marked():
    """Nobody measured it."""
    (row,) = read_page("mlperf_inference", json.dumps([make_row(inferred=1)])).rows
    assert "inferred by the round from another result, not measured" in row.conditions


def test_a_damaged_round_is_named_once(tmp_path):
    """With its path, and what is wrong."""
    path = tmp_path / "summary_results.json"
    path.write_text(json.dumps([make_row(Performance_Units="furlongs")]))
    with pytest.raises(ConfigError) as error:
        table_file.read_any(path, None, GIVEN)
    assert str(error.value).count("summary_results.json") == 1
