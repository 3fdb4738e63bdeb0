"""Tests of compilers: Google's for the Edge TPU and NVIDIA's trtexec.

Small programs play them, and print what the real ones do.
"""

import os
from pathlib import Path

import pytest

from edgemeter.agent.base.errors import ConfigError, UnavailableError
from edgemeter.models.convert import compilers
from edgemeter.models.convert.formats import MakerInputs
from tests.fixtures.rows import table_row

NO_INPUTS = MakerInputs()
MODEL = Path(__file__).parents[2] / "fixtures" / "runtimes" / "litert_int8.tflite"
# As version 16 prints it.
PARTLY = """\
Edge TPU Compiler version 16.0.384591198
Started a compilation timeout timer of 180 seconds.

Model compiled successfully in 2270 ms.

On-chip memory used for caching model parameters: 6.02MiB
On-chip memory remaining for caching model parameters: 1.02MiB
Off-chip memory used for streaming uncached model parameters: 41.75KiB
Number of Edge TPU subgraphs: 1
Total number of operations: 65

Model successfully compiled but not all operations are supported by the Edge TPU.
Number of operations that will run on Edge TPU: 63
Number of operations that will run on CPU: 2

Operator                       Count      Status

CONV_2D                        60         Mapped to Edge TPU
LOGISTIC                       3          Mapped to Edge TPU
LOGISTIC                       1          Operation is otherwise supported, but not mapped due to \
some unspecified limitation
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
PASSED = (
    "&&&& RUNNING TensorRT.trtexec [TensorRT v{version}] # trtexec\n[I] Engine built in 12.3 "
    "sec.\n&&&& PASSED TensorRT.trtexec\n"
)
FAILED = """\
&&&& RUNNING TensorRT.trtexec [TensorRT v8502] # trtexec
[11/20/2026-09:00:00] [E] [TRT] ModelImporter.cpp:771: While parsing node number 3 \
[ConvInteger -> "x"]: No importer registered
[11/20/2026-09:00:00] [E] Failed to parse onnx file
&&&& FAILED TensorRT.trtexec [TensorRT v8502] # trtexec
"""


# The programs write the compiled file into the folder behind -o, and the engine to its option's
# path.
COPY = (
    '[ "$1" = -s ] && [ "$2" = -o ] || exit 64; cp "$4" "$3/$(basename "$4" '
    '.tflite)_edgetpu.tflite"'
)
ENGINE = (
    'for one; do [ "${one#--saveEngine=}" = "$one" ] || echo engine >"${one#--saveEngine=}"; done'
)


@pytest.fixture
def program(tmp_path, monkeypatch):
    """Return a function that makes a folder with a program, and puts it on the PATH.

    The program notes its arguments, prints a text, and may write a file.
    """

    def install(name, printed, write="", status=0):
        folder = tmp_path / "bin"
        folder.mkdir(exist_ok=True)
        (folder / "said.txt").write_text(printed)
        script = folder / name
        script.write_text(
            f'#!/bin/sh\necho "$@" >"{folder}/arguments"\n{write}\ncat '
            f'"{folder}/said.txt"\nexit {status}\n'
        )
        script.chmod(0o755)
        monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)
        return folder

    return install


def test_operations_on_both_processors_are_read():
    """The 63 mapped and 2 unmapped operations are read, with the reason for each of the two."""
    facts = dict(compilers.read_coverage(PARTLY))
    left_on_cpu = facts.pop("left_on_cpu").split("; ")
    assert facts == {
        "edgetpu_compiler": "16.0.384591198",
        "edgetpu_operations": 63,
        "cpu_operations": 2,
    }
    assert [line.partition(":")[0] for line in left_on_cpu] == ["1 LOGISTIC", "1 DEQUANTIZE"]
    assert compilers.read_coverage(WHOLLY) == {
        "edgetpu_compiler": "16.0.384591198",
        "edgetpu_operations": 27,
        "cpu_operations": 0,
    }
    # After silence, half a table or garbage, no operator count is made up.
    for printed in (
        "",
        "Edge TPU Compiler version 16.0.384591198\nOperator   Count",
        "\x00\xff" * 40,
    ):
        with table_row(printed):
            assert "edgetpu_operations" not in compilers.read_coverage(printed)


def test_without_a_compiler_one_line_names_where_to_get_it(tmp_path):
    """A missing compiler gives one line that names its source, as neither is a Python package."""
    with pytest.raises(UnavailableError, match=r"coral\.ai"):
        compilers.make_edgetpu(MODEL, tmp_path / "out.tflite", NO_INPUTS)
    with pytest.raises(UnavailableError, match="install TensorRT"):
        compilers.build_engine(
            tmp_path / "a.onnx", tmp_path / "a.engine", "--fp16", jetson=str(tmp_path)
        )


@pytest.mark.services
def test_a_model_is_compiled_or_refused_in_the_compilers_words(program, tmp_path):
    """A model is compiled, or refused in the compiler's words even where its status is 0.

    Version 2 ends with 0 all the same.
    """
    target = tmp_path / "out.tflite"
    refusal = (
        "Edge TPU Compiler version 16.0.384591198\n\nInvalid model: model.tflite\n"
        "Model not quantized\n"
    )
    for status in (1, 0):
        program(compilers.EDGETPU_COMPILER, refusal, status=status)
        with pytest.raises(ConfigError, match="Model not quantized"):
            compilers.make_edgetpu(MODEL, target, NO_INPUTS)
        assert not target.exists()
    program(compilers.EDGETPU_COMPILER, PARTLY, COPY)
    assert compilers.make_edgetpu(MODEL, target, NO_INPUTS) == compilers.read_coverage(PARTLY)
    assert target.read_bytes() == MODEL.read_bytes()


@pytest.mark.services
def test_an_engine_is_built_as_the_card_states_or_the_first_error_is_the_reason(
    program, tmp_path, monkeypatch
):
    """An engine is built as the card states, or the compiler's first error is the reason.

    The program is found in the Jetson's folder, which is not on the PATH there. TensorRT may be
    installed where no GPU is.
    """
    path, model, engine = os.environ["PATH"], tmp_path / "a.onnx", tmp_path / "a.engine"
    for printed, kind, message in (
        (FAILED, ConfigError, "No importer registered"),
        (
            "[E] Cuda failure: no CUDA-capable device is detected\n",
            UnavailableError,
            "no CUDA-capable device",
        ),
    ):
        program(compilers.TRTEXEC, printed, status=1)
        with pytest.raises(kind, match=message):
            compilers.build_engine(model, engine, "--int8")
    # TensorRT changed its numbering with version 10.
    for number, version, precision in (("8502", "8.5.2", "fp16"), ("101303", "10.13.3", "int8")):
        folder = program(compilers.TRTEXEC, PASSED.format(version=number), ENGINE)
        monkeypatch.setenv("PATH", path)
        facts = compilers.build_engine(model, engine, f"--{precision}", jetson=str(folder))
        assert (folder / "arguments").read_text().split() == [
            f"--onnx={model}",
            f"--saveEngine={engine}",
            f"--{precision}",
        ]
        assert facts == {
            "tensorrt": version,
            "command": f"trtexec --onnx=... --saveEngine=... --{precision}",
        }
