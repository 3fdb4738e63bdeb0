"""TensorRT's trtexec, played by a small program: the command line, the version, and what is said when it fails."""

import os

import pytest

from edgemeter.agent.base.errors import ConfigError, UnavailableError
from edgemeter.models.convert import compilers

PASSED = "&&&& RUNNING TensorRT.trtexec [TensorRT v{version}] # trtexec\n[I] Engine built in 12.3 sec.\n&&&& PASSED TensorRT.trtexec\n"
FAILED = """\
&&&& RUNNING TensorRT.trtexec [TensorRT v8502] # trtexec
[11/20/2026-09:00:00] [E] [TRT] ModelImporter.cpp:771: While parsing node number 3 [ConvInteger -> "x"]: No importer registered
[11/20/2026-09:00:00] [E] Failed to parse onnx file
&&&& FAILED TensorRT.trtexec [TensorRT v8502] # trtexec
"""


@pytest.fixture
def program(tmp_path):
    """Return a way to make a folder with a `trtexec` that notes its arguments, prints a text and may write the engine."""

    def install(said, *, status=0):
        folder = tmp_path / "bin"
        folder.mkdir()
        (folder / "said.txt").write_text(said)
        script = folder / compilers.TRTEXEC
        engine = '[ "${one#--saveEngine=}" = "$one" ] || echo engine >"${one#--saveEngine=}"'
        write = f"for one; do {engine}; done" if status == 0 else ""
        script.write_text(f'#!/bin/sh\necho "$@" >"{folder}/arguments"\ncat "{folder}/said.txt"\n{write}\nexit {status}\n')
        script.chmod(0o755)
        return folder

    return install


@pytest.mark.parametrize(("precision", "flag"), [("fp16", "--fp16"), ("int8", "--int8")])
def test_the_engine_is_built_as_the_card_states(program, tmp_path, precision, flag):
    """Found in the Jetson's folder, which is not on the PATH there."""
    folder = program(PASSED.format(version=8502))
    facts = compilers.build_engine(tmp_path / "a.onnx", tmp_path / "a.engine", precision, jetson=str(folder))
    assert (folder / "arguments").read_text().split() == [f"--onnx={tmp_path / 'a.onnx'}", f"--saveEngine={tmp_path / 'a.engine'}", flag]
    assert facts == {"tensorrt": "8.5.2", "command": f"trtexec --onnx=... --saveEngine=... {flag}"}


def test_the_version_is_read_from_the_banner():
    """TensorRT changed its numbering with version 10."""
    for number, version in (("8502", "8.5.2"), ("8601", "8.6.1"), ("100300", "10.3.0"), ("101303", "10.13.3")):
        assert compilers._dotted(number) == version, number


def test_its_first_error_is_the_reason(program, tmp_path):
    """Not the last line, which only says that it failed."""
    folder = program(FAILED, status=1)
    with pytest.raises(ConfigError, match=r"built no engine of 'a\.onnx' \(status 1\): .*No importer registered"):
        compilers.build_engine(tmp_path / "a.onnx", tmp_path / "a.engine", "int8", jetson=str(folder))


def test_without_a_gpu_it_is_unavailable(program, tmp_path):
    """TensorRT may be installed where no GPU is."""
    folder = program("[E] Cuda failure: no CUDA-capable device is detected\n", status=1)
    with pytest.raises(UnavailableError, match="no CUDA-capable device"):
        compilers.build_engine(tmp_path / "a.onnx", tmp_path / "a.engine", "fp16", jetson=str(folder))


def test_without_trtexec_one_line_names_where_it_comes_from(monkeypatch, tmp_path):
    """The PATH and the Jetson's folder were searched."""
    monkeypatch.setenv("PATH", os.devnull)
    with pytest.raises(UnavailableError, match=r"trtexec is neither on the PATH nor in .*install TensorRT"):
        compilers.build_engine(tmp_path / "a.onnx", tmp_path / "a.engine", "fp16", jetson=str(tmp_path))
