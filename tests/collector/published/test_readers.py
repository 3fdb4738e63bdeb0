import json

import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.collector.published.laws import judge
from edgemeter.collector.published.readers import quantity, read
from tests.fixtures.published_rows import mlperf
from tests.fixtures.rows import table_row

FACTS = {"source": "A page", "version": "1", "date": "2026-11-20", "address": "https://example.org/page"}
MARKDOWN = """# Results

| Model | Latency (ms) | FPS | [Note](x) |
|---|---:|---:|---|
| **YOLO11n** | 3.49 | 286 | a |
| YOLO11s | - | 120 fps | b |
| too | few |
"""


def read_text(tmp_path, name, text, *columns, **facts):
    """Return what is read of a file with this text."""
    path = tmp_path / name
    path.write_text(text)
    return read(path, columns, FACTS | facts)


def figures_of(result):
    """Return the figures that were read, in short."""
    return [(row.model, row.figure, row.canonical) for row in result.rows]


def test_a_markdown_table_is_read_by_the_names_of_its_columns(tmp_path):
    """What is not understood is left out and named with its line."""
    result = read_text(tmp_path, "page.md", MARKDOWN, "Model=model", "Latency (ms)=p50:ms", "FPS=throughput:fps", device="Jetson Orin Nano")
    assert figures_of(result) == [
        ("YOLO11n", "latency_p50_ms", 3.49),
        ("YOLO11n", "throughput_per_s", 286.0),
        ("YOLO11s", "throughput_per_s", 120.0),
    ]
    assert {row.device for row in result.rows} == {"Jetson Orin Nano"}
    assert [words.partition(":")[0] for words in result.left_out] == ["line 6, latency (ms)", "line 7"]


def test_a_csv_table_needs_no_mapping_of_columns_that_are_fields(tmp_path):
    """Whatever stands between its cells; `value` with `figure` and `unit` is a figure."""
    text = "Name,device,figure,value,unit\nyolo11n,Raspberry Pi 5,p50,81.2,ms\nyolo11n,Raspberry Pi 5,p50,x,ms\n"
    for separator in (",", ";", "\t"):
        with table_row(separator):
            result = read_text(tmp_path, "rows.csv", text.replace(",", separator), "Name=model")
            assert figures_of(result) == [("yolo11n", "latency_p50_ms", 81.2)]
            assert len(result.left_out) == 1


def test_a_mapping_that_fits_no_table_is_refused(tmp_path):
    """A figure's column is the least."""
    for columns, message in (
        (["Model=model"], "no table has the columns"),
        (["Model=model", "Watt=power"], "no table has the columns"),
        (["Model=colour"], "'colour' is not a figure"),
        (["FPS=throughput:ms"], "'ms' is not a unit of throughput"),
    ):
        with table_row(columns), pytest.raises(ConfigError, match=message):
            read_text(tmp_path, "page.md", MARKDOWN, *columns)


def test_our_own_file_has_editions_cases_and_figures(tmp_path):
    """What stands above holds below; the same figure twice is left out."""
    text = """
runtime = "onnx"
[[case]]
model = "m"
device = "Raspberry Pi 5"
figures = [{ figure = "energy_gross_mj", value = 0.5, unit = "J" }, { figure = "throughput_per_s", value = 10, unit = "fps" }]
[[case]]
model = "m"
device = "Raspberry Pi 5"
figures = [{ figure = "energy_gross_mj", value = 0.6, unit = "J" }, { figure = "colour", value = 1, unit = "J" }]
"""
    result = read_text(tmp_path, "own.toml", text)
    assert figures_of(result) == [("m", "energy_gross_mj", 500.0), ("m", "throughput_per_s", 10.0)]
    assert [row.runtime for row in result.rows] == ["onnx", "onnx"]
    assert len(result.left_out) == 2
    assert judge(result.rows)[0].deciding.value == pytest.approx(5.0)


def test_a_round_of_mlperf_gives_rates_percentiles_and_power(tmp_path):
    """SingleStream states the 90th percentile; what is faulty, or unknown, is left out."""
    stream = {"Scenario": "SingleStream", "Performance_Units": "Latency (ms)", "Performance_Result": 0.64}
    results = [
        mlperf(), mlperf(**stream, Power_Result=12.5, Power_Units="Watts"), mlperf(Model="bert", errors=1),
        mlperf(Model="gpt", Performance_Units="jokes/s"), mlperf(Model="llm", Performance_Units="Tokens/s"),
    ]  # fmt: skip
    result = read_text(tmp_path, "summary_results.json", json.dumps(results))
    assert figures_of(result) == [
        ("resnet", "throughput_per_s", 6400.5), ("resnet", "latency_p90_ms", 0.64), ("resnet", "energy_mean_power_w", 12.5),
        ("llm", "generation_output_tokens_per_s", 6400.5),
    ]  # fmt: skip
    assert {(row.source, row.version, row.is_mlperf) for row in result.rows} == {("MLPerf Inference v5.1", "v5.1", True)}
    assert len(result.left_out) == 2


def test_a_damaged_file_is_named(tmp_path):
    """Nothing of it is taken."""
    for name in ("a.toml", "a.json", "a.csv"):
        (tmp_path / name).write_bytes(b'[{"ID": \xff')
        with table_row(name), pytest.raises(ConfigError, match=name):
            read(tmp_path / name, (), FACTS)


def test_a_number_is_read_with_its_unit():
    """A comma is a thousand only where nothing else can be meant; what may mean two things is no number."""
    cells = {"1,234.5": (1234.5, ""), "12,345,678": (12345678.0, ""), "3.3 ms": (3.3, "ms"), "1e3W": (1e3, "W")}
    assert {cell: quantity(cell) for cell in cells} == cells
    for cell in ("1,234", "fast", "", "3.2.1"):
        with table_row(cell), pytest.raises(ValueError, match=r"not a number|decimal"):
            quantity(cell)
