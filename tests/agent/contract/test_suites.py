"""Facts about `edgemeter.agent.contract.suite`."""

from pathlib import Path

import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract import suite as contract_suite

SAMPLE = contract_suite.SAMPLE


def _suite(tmp_path, text):
    path = tmp_path / "suite.toml"
    path.write_text(text)
    return contract_suite.read(path)


def test_the_sample_expands_precisions_and_threads():
    """Two precisions on one and two threads, and the reference: five cases."""
    suite = contract_suite.read(SAMPLE)
    assert [(Path(c.model).name, c.threads, c.role) for c in suite.cases] == [
        ("detector_fp32.tflite", 1, "device"),
        ("detector_fp32.tflite", 2, "device"),
        ("detector_int8.tflite", 1, "device"),
        ("detector_int8.tflite", 2, "device"),
        ("detector_fp32.onnx", 1, "reference"),
    ]


def test_every_commented_default_of_the_sample_is_a_known_key(tmp_path):
    """With all commented keys switched on the sample still reads."""
    lines = SAMPLE.read_text().splitlines()
    text = "\n".join(line.removeprefix("# ") for line in lines).replace('"..."', f'"{"0" * 64}"')
    assert len(_suite(tmp_path, text).cases) == 9


def test_a_matrix_leaves_out_what_a_runtime_cannot_read(tmp_path):
    """Models x runtimes: the two combinations that cannot work are named, not failed."""
    suite = _suite(tmp_path, 'name = "m"\n[[case]]\nmodel = ["a.tflite", "a.onnx"]\nruntime = ["litert", "onnx"]\n')
    assert [(Path(c.model).name, c.runtime) for c in suite.cases] == [("a.tflite", "litert"), ("a.onnx", "onnx")]
    assert suite.left_out == ("case[0]: onnx does not read a.tflite", "case[0]: litert does not read a.onnx")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('name = "m"\n[[case]]\nmodel = "a.onnx"\nthread = 2\n', r"\[\[case\]\] number 1 thread: no such key: did you mean threads\?"),
        ('name = "m"\n[defaults]\nmode = "fast"\n[[case]]\nmodel = "a.onnx"\n', r"\[defaults\] mode: 'fast' is unknown"),
        ('name = "m"\n[[case]]\nmodel = "a.onnx"\nthreads = 0\n', r"number 1 threads: expected a whole number of at least 1"),
        ('name = "m"\n[[case]]\nruntime = "onnx"\n', r"case\[0\] names no model"),
        ('name = "m"\n', "case"),
        ("name = ", "suite"),
        ('name = "m"\n[[case]]\nmodel = "a.xyz"\n', "no runtime is known for 'a.xyz'"),
        ('name = "m"\n[[case]]\nmodel = "a.onnx"\nruntime = "litert"\n', "nothing to measure"),
    ],
)
def test_a_wrong_suite_is_refused_with_the_place(tmp_path, text, says):
    """A typo, a wrong value or a missing key names its path in the file."""
    with pytest.raises(ConfigError, match=says):
        _suite(tmp_path, text)


def test_a_missing_suite_is_one_line(tmp_path):
    """A path that is not there says so."""
    with pytest.raises(ConfigError, match=r"cannot read the suite .*No such file"):
        contract_suite.read(tmp_path / "none.toml")


def test_paths_are_relative_to_the_suite(tmp_path):
    """A suite works from any working directory."""
    suite = _suite(tmp_path, 'name = "m"\n[[case]]\nmodel = "a.onnx"\nimages = "photos"\n')
    assert (suite.cases[0].model, suite.cases[0].images) == (str(tmp_path / "a.onnx"), str(tmp_path / "photos"))
