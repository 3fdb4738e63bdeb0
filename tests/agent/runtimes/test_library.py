"""Importing a runtime's library: the first that is there, told by package and version, and what to install otherwise."""

import sys
from importlib.metadata import version

import pytest

from edgemeter.agent.errors import UnavailableError
from edgemeter.agent.runtimes import library
from edgemeter.agent.runtimes.library import Candidate


@pytest.fixture
def made(tmp_path, monkeypatch):
    """Return a function that makes a module of the given source on the path."""
    monkeypatch.syspath_prepend(tmp_path)

    def make(name: str, source: str) -> str:
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("__version__ = '9.9'\n")
        (tmp_path / name / "interpreter.py").write_text(source)
        monkeypatch.delitem(sys.modules, name, raising=False)
        return f"{name}.interpreter"

    return make


def test_the_first_candidate_that_is_there_is_taken(made):
    """An absent library is passed over for the next one."""
    present = made("present_library", "x = 1")
    found = library.load([Candidate("nobody_has_this.interpreter", ("a",)), Candidate(present, ("numpy",))], "litert")
    assert found.module.x == 1
    assert (found.package, found.version) == ("numpy", version("numpy"))


def test_the_order_of_candidates_decides(made):
    """With both there, the fallback is not taken."""
    first, second = made("first_library", "x = 1"), made("second_library", "x = 2")
    assert library.load([Candidate(first, ("a",)), Candidate(second, ("b",))], "litert").module.x == 1


def test_a_build_under_another_name_tells_its_own_version(made):
    """A vendor's wheel may carry no distribution that we know."""
    found = library.load([Candidate(made("vendor_library", "x = 1"), ("nobody-has-this",))], "onnx")
    assert (found.package, found.version) == ("nobody-has-this", "9.9")


def test_an_import_is_timed_and_a_second_one_costs_nothing(made):
    """The duration is that of the import itself."""
    candidate = Candidate(made("slow_library", "import time; time.sleep(0.02)"), ("a",))
    assert library.load([candidate], "onnx").import_ns >= 20_000_000
    assert library.load([candidate], "onnx").import_ns < 20_000_000


def test_nothing_installed_says_what_to_install():
    """The line names the modules tried and the extra."""
    with pytest.raises(UnavailableError, match=r"no usable nobody_has_this is installed here; .*pip install 'edgemeter\[onnx\]'"):
        library.load([Candidate("nobody_has_this", ("a",))], "onnx")


def test_a_library_that_is_there_but_broken_is_told_from_an_absent_one(made):
    """A missing shared object or another's absence is said in its own words."""
    broken = made("broken_library", "import nobody_has_this_either")
    with pytest.raises(UnavailableError, match=r"is here but cannot be imported: No module named 'nobody_has_this_either'"):
        library.load([Candidate(broken, ("a",))], "litert")


def test_a_missing_shared_object_is_no_traceback(made):
    """PyTorch raises OSError where a CUDA library is missing."""
    broken = made("objectless_library", "raise OSError('libcudart.so.12: cannot open shared object file')")
    with pytest.raises(UnavailableError, match=r"libcudart\.so\.12"):
        library.load([Candidate(broken, ("a",))], "torch")


def test_errors_come_on_one_line_and_not_endless():
    """Messages of C++ libraries are long and have many lines."""
    assert library.one_line(ValueError("a\n  b\n")) == "a b"
    assert library.one_line(ValueError()) == "ValueError"
    assert len(library.one_line(ValueError("x" * 1000))) == 300
