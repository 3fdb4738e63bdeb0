"""Tests of the code that a board runs with its own Python."""

import ast
import sys
from pathlib import Path

import pytest

from edgemeter.provisioning.apply import on_device
from edgemeter.provisioning.release import install


def test_what_runs_without_a_release_needs_nothing_but_an_old_python():
    """Code that runs without a release needs only an old Python's standard library.

    It may import files beside it. Imports for types alone are not executed.
    """
    installer = Path(install.__file__)
    supervisor = installer.with_name("supervisor.py")
    for path, version, neighbours in (
        (installer, (3, 8), set()),
        (supervisor, (3, 8), {"install"}),
        (Path(on_device.__file__), (3, 10), set()),
    ):
        tree = ast.parse(path.read_text(), feature_version=version)
        for node in ast.walk(tree):
            if (
                isinstance(node, ast.If)
                and isinstance(node.test, ast.Name)
                and node.test.id == "TYPE_CHECKING"
            ):
                node.body = []
        imported = {
            alias.name.split(".")[0]
            for node in ast.walk(tree)
            if isinstance(node, ast.Import)
            for alias in node.names
        }
        imported |= {
            (node.module or "").split(".")[0]
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom)
        }
        assert imported <= sys.stdlib_module_names | neighbours, path


def test_versions_are_ordered_as_python_orders_them():
    """Versions are ordered as development, alpha, beta, candidate, final and post.

    A local part does not count.
    """
    text = (
        "0.9 1.0.dev1 1.0a1.dev2 1.0a1 1.0a2 1.0b1 1.0rc1 1.0 1.0.post1 1.0.1 1.2 1.10 2.0.dev3 2.0"
    )
    keys = [install.version_key(version) for version in text.split()]
    assert keys == sorted(keys)
    assert len(set(map(str, keys))) == len(keys)
    assert (
        install.version_key("1.0+0badcafe")
        == install.version_key("1.0.0+feedbeef")
        == install.version_key("1")
    )
    with pytest.raises(install.RefusedError):
        install.version_key("1.0-evil")
