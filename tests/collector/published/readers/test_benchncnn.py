from edgemeter.collector.published.readers.benchncnn import Benchncnn
from tests.fixtures.published_defaults import DEFAULTS, fixture

TWO_BOARDS = """
benchncnn can be used to test performance

### A board (Cortex-A53 1.4GHz x 4)
```
$ ./benchncnn 8 4 0
loop_count = 8
num_threads = 4
powersave = 2
      squeezenet  min =  108.66  max =  109.24  avg =  108.96
   mobilenet-ssd  min =  262.91  max =    nan  avg =  263.85

$ ./benchncnn 4 1 0 0 0
[0 A GPU]  queueC=2[8]  queueG=0[16]  queueT=1[2]
loop_count = 4
num_threads = 1
gpu_device = 0
cooling_down = 0
      squeezenet  min =   11.73  max =   11.88  avg =   11.78
      squeezenet  min =   11.74  max =   11.89  avg =   11.79
```
### Another board
loop_count = 4
      squeezenet  min =   1.73  max =   1.88  avg =   1.78
"""


def test_a_line_is_the_mean_of_a_network_with_its_range():
    """Under the settings of the run; `_int8` is the only precision that a name states."""
    table = Benchncnn().read(fixture("benchncnn.txt"), DEFAULTS)
    assert table.left_out == ()
    by_model = {row.model: row for row in table.rows}
    assert {name: row.precision for name, row in by_model.items()} == {
        "squeezenet": None,
        "squeezenet_int8": "int8",
        "mobilenet": None,
        "mobilenet_int8": "int8",
        "vgg16": None,
    }
    row = by_model["vgg16"]
    assert (row.figure, row.statistic, row.value, row.unit, row.low, row.high) == ("latency-mean", "mean", 341.03, "ms", 214.7, 1220.14)
    assert (row.count, row.threads, row.backend, row.runtime, row.device) == (8, 4, "cpu", "ncnn", "Raspberry Pi 5")
    assert row.conditions == "benchncnn, without the model's weights, powersave 0 (all cores), cooled down before"


def test_a_heading_names_the_device_and_each_run_has_its_settings():
    """As ncnn's page of many boards; a setting that a run does not print is not stated."""
    rows = Benchncnn().read(TWO_BOARDS, {name: value for name, value in DEFAULTS.items() if name != "device"}).rows
    assert [(row.device, row.value, row.count, row.threads, row.backend) for row in rows] == [
        ("A board (Cortex-A53 1.4GHz x 4)", 108.96, 8, 4, None),
        ("A board (Cortex-A53 1.4GHz x 4)", 11.78, 4, 1, "gpu"),
        ("Another board", 1.78, 4, None, None),
    ]
    assert "powersave 2 (big cores)" in rows[0].conditions
    assert "powersave" not in rows[1].conditions


def test_a_line_that_is_not_understood_is_named():
    """And one that comes twice."""
    left_out = Benchncnn().read(TWO_BOARDS, DEFAULTS).left_out
    assert [reason.split(":")[0] for reason in left_out] == ["line 11", "line 20"]
    assert "not understood: 'mobilenet-ssd" in left_out[0]
    assert "squeezenet under these conditions appears before" in left_out[1]
