import pytest

from edgemeter.collector.published.readers.trtexec import Trtexec
from tests.fixtures.published_defaults import DEFAULTS, fixture
from tests.fixtures.rows import table_row

LOG = fixture("trtexec.log")
SHAPE = "Input inference shape : input=8x3x224x224"


def read(*changes, defaults=DEFAULTS):
    """Return the table of the fixture, in which each change is (text, its replacement)."""
    text = LOG
    for before, after in changes:
        assert before in text
        text = text.replace(before, after)
    return Trtexec().read(text, defaults)


def figure(table, name, statistic=None):
    """Return the row of that figure and statistic."""
    (row,) = (row for row in table.rows if (row.figure, row.statistic) == (name, statistic))
    return row


def test_the_summary_is_a_row_a_figure():
    """Mean with its range, median, percentiles, and throughput in images, in one case."""
    table = read()
    values = {(row.figure, row.statistic): row.value for row in table.rows}
    assert values == {
        ("throughput", None): pytest.approx(8 * 259.16),
        ("latency-mean", "mean"): 4.09914,
        ("latency", "median"): 4.07886,
        ("latency-p90", "p90"): 4.20105,
        ("latency", "p95"): 4.25342,
        ("latency-p99", "p99"): 4.47693,
    }
    mean = figure(table, "latency-mean", "mean")
    assert (mean.low, mean.high, mean.count) == (3.97021, 4.8103, 780)
    assert len({row.case for row in table.rows}) == 1


def test_the_options_that_the_log_states_are_in_each_row():
    """Model, day, version, precision, shape, batch, streams; the GPU is a condition, the board is the user's to name."""
    (row, *_) = read().rows
    assert (row.model, row.date, row.software, row.runtime, row.backend) == (
        "mobilenet_v2",
        DEFAULTS["date"],
        "TensorRT 10.3.0",
        "tensorrt",
        "gpu",
    )
    assert (row.precision, row.input_size, row.batch, row.concurrency) == ("fp32+fp16", "input=8x3x224x224", 8, 1)
    assert (row.device, row.conditions) == ("Raspberry Pi 5", "trtexec, tested 2026-10-07, GPU Orin, CUDA graph, a query is a batch of 8")


def test_gpu_compute_time_is_no_latency():
    """It is without the copies; it and the parts of a query are named."""
    assert [reason.partition(", ")[2] for reason in read().left_out] == [
        "Latency, p99.5: no statistic of that name",
        "Enqueue Time: a part of a query: no figure",
        "H2D Latency: a part of a query: no figure",
        "GPU Compute Time: without the copies to and from the GPU: no latency",
        "D2H Latency: a part of a query: no figure",
    ]


def test_the_batch_is_what_the_log_states():
    """A fixed shape is not in the log, inputs can differ in their first dimension, an implicit batch counts images."""
    for shape, batch, throughput, count in (
        (SHAPE, 8, 8 * 259.16, 780),
        ("Input inference shapes: model", None, 259.16, 780),
        (f"{SHAPE}\n[I] Input inference shape : lengths=1", None, 259.16, 780),
        ("Batch: 4\n[I] Input inference shapes: model", 4, 259.16, 195),
    ):
        with table_row(shape):
            row = figure(read((SHAPE, shape)), "throughput")
            assert (row.batch, row.value, row.count) == (batch, pytest.approx(throughput), count)


def test_a_loaded_engine_has_no_precision_in_the_log():
    """The program prints that of a build, FP32, and batch 1, whatever the engine has."""
    loaded = (
        ("--onnx=models/mobilenet_v2.onnx --fp16", "--loadEngine=nets/detector.engine"),
        ("Model: models/mobilenet_v2.onnx", "Model: "),
    )
    (row, *_) = read(*loaded, (SHAPE, "Input inference shapes: model"), ("Batch: Explicit", "Batch: 1")).rows
    assert (row.model, row.precision, row.batch, row.unit) == ("detector", None, None, "qps")
    assert "the engine was loaded" in row.conditions


def test_switches_and_a_dla_are_conditions():
    """Without copies the latency is another one."""
    (row, *_) = read(("Data transfers: Enabled", "Data transfers: Disabled"), ("DLACore: ", "DLACore: 0")).rows
    assert row.backend == "dla"
    assert "without copies" in row.conditions


def test_each_run_of_a_log_has_its_own_options():
    """Of a log of two; the day of a test is a condition, that of retrieval the user's."""
    second = LOG.replace("mobilenet_v2", "resnet50").replace("[10/07/2026-14:02:11] ", "").replace("--fp16", "")
    table = Trtexec().read(LOG + second.replace("[10/07/2026-14:03:40] ", "").replace("[10/07/2026-14:02:12] ", ""), DEFAULTS)
    assert {(row.model, row.date, "tested" in row.conditions) for row in table.rows} == {
        ("mobilenet_v2", DEFAULTS["date"], True),
        ("resnet50", DEFAULTS["date"], False),
    }
    assert len(table.rows) == 12


def test_the_version_is_that_of_tensorrt_where_the_user_gives_none():
    """A page has an edition of its own."""
    (row, *_) = read(defaults={name: value for name, value in DEFAULTS.items() if name != "version"}).rows
    assert row.version == "TensorRT 10.3.0"
