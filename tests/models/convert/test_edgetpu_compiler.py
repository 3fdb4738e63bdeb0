"""What the Edge TPU compiler says, in its own format, from a small program that prints it."""

import os
import textwrap
from pathlib import Path

import pytest

from edgemeter.agent.base.errors import ConfigError, UnavailableError
from edgemeter.models.convert import compilers
from tests.fixtures.rows import table_row

MODEL = Path(__file__).parents[2] / "fixtures" / "runtimes" / "litert_int8.tflite"
# As version 16 prints it.
PARTLY = """\
Edge TPU Compiler version 16.0.384591198
Started a compilation timeout timer of 180 seconds.

Model compiled successfully in 2270 ms.

Input model: model.tflite
Input size: 5.21MiB
Output model: model_edgetpu.tflite
Output size: 6.51MiB
On-chip memory used for caching model parameters: 6.02MiB
On-chip memory remaining for caching model parameters: 1.02MiB
Off-chip memory used for streaming uncached model parameters: 41.75KiB
Number of Edge TPU subgraphs: 1
Total number of operations: 65
Operation log: model_edgetpu.log

Model successfully compiled but not all operations are supported by the Edge TPU. A percentage of the model will instead run on the CPU, \
which is slower. If possible, consider updating your model to use only operations supported by the Edge TPU. For details, visit \
g.co/coral/model-reqs.
Number of operations that will run on Edge TPU: 63
Number of operations that will run on CPU: 2

Operator                       Count      Status

CONV_2D                        60         Mapped to Edge TPU
LOGISTIC                       3          Mapped to Edge TPU
LOGISTIC                       1          Operation is otherwise supported, but not mapped due to some unspecified limitation
DEQUANTIZE                     1          Operation is working on an unsupported data type
Compilation child process completed within timeout period.
Compilation succeeded!
"""
# All on the Edge TPU: the two sums are not printed.
WHOLLY = """\
Edge TPU Compiler version 16.0.384591198

Model compiled successfully in 1024 ms.

Number of Edge TPU subgraphs: 1

Operator                       Count      Status

ADD                            10         Mapped to Edge TPU
DEPTHWISE_CONV_2D              17         Mapped to Edge TPU
"""


@pytest.fixture
def compiler(tmp_path, monkeypatch):
    """Return a way to put an `edgetpu_compiler` on the PATH that prints a text and may write a file."""

    def install(said, *, status=0, writes=True):
        folder = tmp_path / "bin"
        folder.mkdir()
        (folder / "said.txt").write_text(said)
        copy = 'cp "$4" "$3/$(basename "$4" .tflite)_edgetpu.tflite"' if writes else ""
        script = folder / compilers.EDGETPU_COMPILER
        script.write_text(
            textwrap.dedent(f"""\
                #!/bin/sh
                [ "$1" = -s ] && [ "$2" = -o ] || exit 64
                {copy}
                cat "{folder}/said.txt"
                exit {status}
                """)
        )
        script.chmod(0o755)
        monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)

    return install


def test_operations_on_both_processors_are_read(compiler, tmp_path):
    """63 and 2, with why each of the two stayed, and where the weights lie."""
    compiler(PARTLY)
    target = tmp_path / "out.tflite"
    coverage = compilers.compile_for_edgetpu(MODEL, target)
    assert target.read_bytes() == MODEL.read_bytes()
    assert coverage.facts == {
        "edgetpu_compiler": "16.0.384591198",
        "on_chip_parameters": "6.02MiB",
        "off_chip_parameters": "41.75KiB",
        "edgetpu_operations": 63,
        "cpu_operations": 2,
        "edgetpu_subgraphs": 1,
    }
    assert coverage.on_cpu == (
        "1 LOGISTIC: Operation is otherwise supported, but not mapped due to some unspecified limitation",
        "1 DEQUANTIZE: Operation is working on an unsupported data type",
    )
    assert coverage.in_words.startswith("63 operations on the Edge TPU, 2 on the CPU (1 LOGISTIC")


def test_sums_that_are_not_printed_come_from_the_table():
    """A model that is mapped as a whole."""
    coverage = compilers.read_coverage(WHOLLY)
    assert (coverage.facts["edgetpu_operations"], coverage.facts["cpu_operations"], coverage.on_cpu) == (27, 0, ())


def test_what_is_not_reported_is_not_made_up():
    """After silence, half a table or garbage, no operator count is given."""
    for said in ("", "Edge TPU Compiler version 16.0.384591198\nOperator   Count", "\x00\xff" * 40):
        with table_row(said):
            coverage = compilers.read_coverage(said)
            assert "edgetpu_operations" not in coverage.facts
            assert "did not report" in coverage.in_words


def test_without_the_compiler_one_line_names_where_to_get_it(monkeypatch, tmp_path):
    """It is no Python package."""
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UnavailableError, match=r"edgetpu_compiler is not on the PATH: install .*coral\.ai"):
        compilers.compile_for_edgetpu(MODEL, tmp_path / "out.tflite")


@pytest.mark.parametrize(("status", "reason"), [(1, "refused"), (0, "wrote no file from")])
def test_a_refused_model_is_reported_in_the_compilers_words(compiler, tmp_path, status, reason):
    """With an error status, and without: version 2 ends with 0 all the same."""
    compiler("Edge TPU Compiler version 16.0.384591198\n\nInvalid model: model.tflite\nModel not quantized\n", status=status, writes=False)
    with pytest.raises(ConfigError, match=rf"{reason}.*Model not quantized"):
        compilers.compile_for_edgetpu(MODEL, tmp_path / "out.tflite")
    assert not (tmp_path / "out.tflite").exists()
