import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.collector.published.laws import judge
from edgemeter.collector.published.readers import read
from tests.fixtures.rows import table_row

FACTS = {"source": "A page", "version": "1", "date": "2026-11-20", "address": "https://example.org/page"}


def read_text(tmp_path, name, text, **facts):
    """Return what is read of a file with this text."""
    path = tmp_path / name
    path.write_text(text)
    return read(path, FACTS | facts)


def figures_of(result):
    """Return the figures that were read, in short."""
    return [(row.model, row.figure, row.canonical) for row in result.rows]


def test_a_csv_table_has_a_figure_a_line(tmp_path):
    """Its headings are fields; what is not understood, or stands twice, is left out and named with its line."""
    lines = (
        "model,figure,value,unit,batch", "yolo11n,p50,81.2,ms,", "yolo11s,throughput,120,fps,8", "yolo11n,p50,x,ms,", "yolo11n,p50,1,ms,",
        "yolo11m,p50,3,ms,1,more", "yolo11l,p50",
    )  # fmt: skip
    result = read_text(tmp_path, "rows.csv", "\n".join(lines), device="Raspberry Pi 5")
    assert figures_of(result) == [("yolo11n", "latency_p50_ms", 81.2), ("yolo11s", "throughput_per_s", 120.0)]
    assert [(row.device, row.batch) for row in result.rows] == [("Raspberry Pi 5", None), ("Raspberry Pi 5", 8)]
    assert [words.partition(":")[0] for words in result.left_out] == ["line 4", "line 5", "line 6", "line 7"]


def test_a_table_of_something_else_is_refused(tmp_path):
    """With the fields that there are."""
    for text in ("Model,Latency (ms)\nyolo11n,81.2\n", "| model | value |\n|---|---|\n", ""):
        with table_row(text), pytest.raises(ConfigError, match=r"is no field: source, version, .*CSV with the fields"):
            read_text(tmp_path, "page.md", text)


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


def test_a_damaged_file_is_named(tmp_path):
    """Nothing of it is taken."""
    for name in ("a.toml", "a.json", "a.csv"):
        (tmp_path / name).write_bytes(b'[{"ID": \xff')
        with table_row(name), pytest.raises(ConfigError, match=name):
            read(tmp_path / name, FACTS)
