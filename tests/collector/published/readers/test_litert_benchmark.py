import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.collector.published import table_file
from edgemeter.collector.published.readers.litert_benchmark import LitertBenchmark
from tests.fixtures.published_defaults import DEFAULTS, FIXTURES, fixture

MODEL = Path(__file__).resolve().parents[4] / "models" / "shipped" / "edgemeter-shapes_fp32.tflite"
PROGRAM = Path(sys.executable).parent / "litert-benchmark"


def read(**changes):
    """Return the table of the fixture; `changes` are fields of its result."""
    return LitertBenchmark().read(json.dumps(json.loads(fixture("litert_benchmark.json")) | changes), DEFAULTS)


def test_each_figure_of_the_program_is_a_row():
    """Mean with its range and deviation, median, p95, the two times of the cold start, and the size in MiB."""
    rows = {(row.figure, row.statistic): row for row in read().rows}
    mean = rows["latency-mean", "mean"]
    assert (mean.value, mean.low, mean.high, mean.standard_deviation, mean.count) == (1.89, 1.71, 2.98, 0.17, 200)
    assert (mean.model, mean.runtime, mean.backend, mean.threads) == ("edgemeter-shapes_fp32", "litert", "cpu", 1)
    assert {key: row.value for key, row in rows.items() if key != ("latency-mean", "mean")} == {
        ("latency", "median"): 1.81,
        ("latency", "p95"): 2.12,
        ("cold_start_load_ms", None): 2.92,
        ("cold_start_first_ms", None): 2.07,
        ("size", None): 0.75,
    }
    assert rows["size", None].canonical == (pytest.approx(0.786432), "MB")
    assert {row.precision for row in rows.values()} == {None}


def test_what_is_no_figure_is_named():
    """p5, and the bytes of input a second."""
    assert read().left_out == ("p5_ms: no figure is a p5", "throughput_mb_s: bytes of input a second are no figure")


def test_a_latency_that_the_program_rounded_to_nothing_is_left_out():
    """It rounds to 0.01 ms."""
    latency = json.loads(fixture("litert_benchmark.json"))["latency"] | {"avg_ms": 0.0, "num_runs": 1, "std_ms": 0, "num_warmup_runs": 0}
    table = read(latency=latency)
    assert "avg_ms: value 0.0 is not a number above 0" in table.left_out
    assert not {row.figure for row in table.rows} & {"latency-mean", "cold_start_first_ms"}


def test_threads_are_those_of_the_cpu():
    """An accelerator alone has none, and a path of another system names the same model."""
    (row, *_) = read(accelerators=["NPU"], model="C:\\models\\net.tflite").rows
    assert (row.backend, row.threads, row.model) == ("npu", None, "net")
    (row, *_) = read(accelerators=["CPU", "GPU"]).rows
    assert (row.backend, row.threads) == ("cpu+gpu", 1)


def test_another_file_is_refused_with_what_to_give():
    """Damaged JSON too."""
    for text in ("{}", "[", fixture("litert_benchmark.json")[:-20]):
        with pytest.raises(ConfigError, match=r"no result of litert-benchmark: .*; give the file that its option result_json names"):
            LitertBenchmark().read(text, DEFAULTS)


def test_the_fixture_is_read_without_naming_the_reader():
    """By the file's content."""
    assert len(table_file.read_any(FIXTURES / "litert_benchmark.json", None, DEFAULTS).rows) == 6


@pytest.mark.slow
@pytest.mark.needs(module="ai_edge_litert")
def test_the_imported_mean_is_the_number_that_the_program_printed(tmp_path):
    """The program of the wheel runs a shipped model; its file is imported as any other."""
    result = tmp_path / "result.json"
    settings = ["--num_threads", "1", "--num_runs", "50", "--warmup_runs", "5", "--result_json", str(result)]
    printed = subprocess.run([str(PROGRAM), "--model", str(MODEL), *settings], capture_output=True, text=True, check=True).stdout
    table = table_file.read_any(result, None, DEFAULTS)
    means = [(row.value, row.count) for row in table.rows if row.figure == "latency-mean"]
    ((mean, runs),) = re.findall(r"Inference \(avg\): +([\d.]+) ms \((\d+) runs\)", printed)
    assert means == [(float(mean), int(runs))]
    assert table.rows[0].model == MODEL.stem
