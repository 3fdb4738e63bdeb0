"""`python -m tests.shipped_models`: its help, and what it needs."""

import pytest
from click.testing import CliRunner

from edgemeter.agent.base.errors import UnavailableError
from tests.shipped_models import build
from tests.shipped_models.__main__ import build_models


def test_help_has_an_example():
    """One sentence and one example."""
    assert "Example: python -m tests.shipped_models" in CliRunner().invoke(build_models, ["--help"]).output


def test_build_names_the_extra_that_is_missing(monkeypatch, tmp_path):
    """Before anything is drawn or written."""
    monkeypatch.setattr(build, "find_spec", lambda name: None if name in ("torch", "litert_torch") else object())
    with pytest.raises(UnavailableError, match=r"torch, litert_torch: pip install 'edgemeter\[convert\]'"):
        CliRunner().invoke(build_models, ["--output", str(tmp_path / "out")], catch_exceptions=False)
    assert not (tmp_path / "out").exists()
