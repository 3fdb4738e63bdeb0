"""A runtime's library is imported, and options, inputs and metadata are checked."""

import sys
from importlib.metadata import version
from types import SimpleNamespace

import pytest

from edgemeter.agent.base.errors import UnavailableError
from edgemeter.agent.recognition import metadata
from edgemeter.agent.runtimes import adapter
from edgemeter.agent.runtimes.adapter import LibraryCandidate
from tests.fixtures.rows import table_row
from tests.fixtures.still_time import stop_time


@pytest.fixture
def make_module(tmp_path, monkeypatch):
    """Return a function that makes a module of the given source on the path."""
    monkeypatch.syspath_prepend(tmp_path)

    def make(name: str, source: str) -> str:
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("__version__ = '9.9'\n")
        (tmp_path / name / "interpreter.py").write_text(source)
        monkeypatch.delitem(sys.modules, name, raising=False)
        return f"{name}.interpreter"

    return make


def test_the_first_candidate_that_is_there_is_taken(make_module):
    """An absent library is passed over for the next one.

    A vendor's wheel may carry no distribution that we know.
    """
    present = make_module("present_library", "x = 1")
    library = adapter.load_library(
        [
            LibraryCandidate("nobody_has_this.interpreter", ("a",)),
            LibraryCandidate(present, ("numpy",)),
        ],
        "litert",
    )
    assert library.module.x == 1
    assert (library.package, library.version) == ("numpy", version("numpy"))
    library = adapter.load_library(
        [LibraryCandidate(make_module("vendor_library", "x = 1"), ("nobody-has-this",))], "onnx"
    )
    assert (library.package, library.version) == ("nobody-has-this", "9.9")


def test_an_import_is_timed_and_a_second_one_costs_nothing(make_module, monkeypatch):
    """The duration is that of the import itself."""
    stop_time(monkeypatch)
    candidate = LibraryCandidate(
        make_module("slow_library", "import time; time.sleep(0.02)"), ("a",)
    )
    assert adapter.load_library([candidate], "onnx").import_ns == 20_000_000
    assert adapter.load_library([candidate], "onnx").import_ns == 0


def test_a_library_that_cannot_be_used_is_one_line(make_module):
    """The line says what to install, or why an installed library is broken.

    The reason may be a missing shared object, which pip does not bring.
    """
    for source, extra, words in [
        (
            None,
            "onnx",
            r"no usable nobody_has_this is installed; .*pip install 'edgemeter\[onnx\]'",
        ),
        (
            "import nobody_has_this_either",
            "litert",
            "cannot be imported: No module named 'nobody_has_this_either'",
        ),
        (
            "raise OSError('libgomp.so.1: cannot open shared object file')",
            "torch",
            r"libgomp.so.1.*sudo apt install libgomp1\Z",
        ),
    ]:
        name = "nobody_has_this" if source is None else make_module(f"broken_of_{extra}", source)
        with table_row(source), pytest.raises(UnavailableError, match=words):
            adapter.load_library([LibraryCandidate(name, ("a",))], extra)


def test_floats_in_the_precision_that_an_accelerator_chooses_are_not_called_the_files(make_module):
    """Such a run must not be compared with fp32; integers stay integers."""
    library = adapter.load_library(
        [LibraryCandidate(make_module("chooses", ""), ("numpy",))], "litert"
    )
    for backend, precision, recorded in [
        ("gpu,auto", "fp32", "unknown"),
        ("npu,auto", "int8", "int8"),
        ("gpu", "fp32", "fp32"),
        ("cpu", None, None),
    ]:
        loaded = library.loaded(
            backend=backend, inputs=(), outputs=(), metadata={}, load_ns=1, precision=precision
        )
        assert loaded.precision == recorded, backend


ULTRALYTICS = """\
description: Ultralytics YOLOv8n model trained on coco.yaml
date: '2026-11-01T10:00:00.000000'
license: AGPL-3.0 License (https://ultralytics.com/license)
stride: 32
task: detect
imgsz:
- 480
- 640
names:
  0: person
  1: 'dog''s lead'
  2: "no: colon"
args:
  half: false
"""


def test_what_ultralytics_writes_is_understood(tmp_path):
    """Task, size and names are recognised in the same form as in other formats."""
    (tmp_path / "metadata.yaml").write_text(ULTRALYTICS)
    texts = adapter.read_metadata(tmp_path, "ncnn")
    assert texts["description"] == "Ultralytics YOLOv8n model trained on coco.yaml"
    assert texts["license"] == "AGPL-3.0 License (https://ultralytics.com/license)"
    assert (texts["date"], texts["imgsz"], texts["stride"]) == (
        "2026-11-01T10:00:00.000000",
        "[480, 640]",
        "32",
    )
    described = metadata.read_self_description(texts)
    assert (described.task, described.size) == ("detect", (480, 640))
    assert described.labels == ("person", "dog's lead", "no: colon")


def test_what_is_not_understood_is_nothing(tmp_path):
    """Metadata is a file's description of itself, and no model needs it to run."""
    for content in [
        b"",
        b"\xff\xfe\x00",
        b"[1, 2]",
        b": :\n- \n",
        b"names:\n" * 3,
        b"x" * (1 << 21),
    ]:
        (tmp_path / "metadata.yaml").write_bytes(content)
        assert adapter.read_metadata(tmp_path, "ncnn") == {}, f"{content[:20]!r}"


def test_of_two_packages_that_bring_a_module_the_one_of_its_version_is_named(monkeypatch):
    """The package installed last has overwritten the module.

    onnxruntime-genai, for example, brings onnxruntime beside a vendor's build.
    """
    versions = {"onnxruntime": "1.31.1", "onnxruntime-openvino": "1.24.1"}
    monkeypatch.setattr("importlib.metadata.version", versions.__getitem__)
    monkeypatch.setattr(
        adapter, "import_module", lambda _name: SimpleNamespace(__version__="1.24.1")
    )
    library = adapter.load_library(
        (adapter.LibraryCandidate("onnxruntime", tuple(versions)),), "onnx"
    )
    assert (library.package, library.version) == ("onnxruntime-openvino", "1.24.1")
