"""Facts about addresses of factories."""

import sys
from pathlib import Path

import pytest

from edgemeter.agent.base import python_target
from edgemeter.agent.base.errors import ConfigError


def test_an_address_is_a_file_or_a_module_and_a_name():
    """Parsing an address looks nothing up."""
    for text, file, module in [
        ("net.py:make", Path("net.py"), None),
        ("/a b/net.py:make", Path("/a b/net.py"), None),
        ("package.module:make", None, "package.module"),
    ]:
        target = python_target.parse(text)
        assert (target.file, target.module, target.attribute) == (file, module, "make")


def test_other_names_of_models_are_no_addresses():
    """A file name, a URL or an incomplete address is not taken for one."""
    for text in [
        "net.py",
        "model.onnx",
        "a:b.onnx",
        "http://host:80",
        "net.py:",
        ":make",
        "a b:make",
        "a/b:make",
        "a:1",
    ]:
        assert python_target.parse(text) is None, text


def test_the_source_of_a_module_is_found_without_running_its_package(tmp_path, monkeypatch):
    """The source is found for a package, its modules, and a module of the current folder.

    A folder without __init__.py counts as a package too.
    """
    (tmp_path / "wide" / "plain").mkdir(parents=True)
    for file in ("wide/__init__.py", "wide/net.py", "wide/plain/deep.py"):
        (tmp_path / file).write_text("raise SystemExit('this was run')")
    monkeypatch.chdir(tmp_path)
    sources = {
        name: python_target.parse(f"{name}:make").source
        for name in ("wide", "wide.net", "wide.plain.deep")
    }
    assert sources == {
        "wide": tmp_path / "wide/__init__.py", "wide.net": tmp_path / "wide/net.py",
        "wide.plain.deep": tmp_path / "wide/plain/deep.py",
    }  # fmt: skip
    assert {python_target.parse(f"{name}:make").top for name in sources} == {tmp_path / "wide"}
    assert "wide" not in sys.modules


def test_an_absent_source_is_refused():
    """The error names what was looked for; the module `sys` has no source file."""
    for address, name in [
        ("absent.py:make", "absent.py"),
        ("no_such_package.net:make", "no_such_package.net"),
        ("sys:exit", "sys"),
    ]:
        with pytest.raises(ConfigError, match=f"'{name}'"):
            _ = python_target.parse(address).source
