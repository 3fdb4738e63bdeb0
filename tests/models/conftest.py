"""What the tests of models share: a server, an empty home, and the command."""

import pytest
from click.testing import CliRunner

from edgemeter.models.cli.main import models
from tests.fixtures.file_server import FileServer


@pytest.fixture
def server():
    """Return a running server that serves nothing yet."""
    running = FileServer()
    yield running
    running.close()


@pytest.fixture(autouse=True)
def home(monkeypatch, tmp_path):
    """Return an empty home; no proxy of this machine stands between test and server."""
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    for name in ("EDGEMETER_CATALOGUE", "EDGEMETER_MODELS", "EDGEMETER_MODELS_LIMIT_MB"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("EDGEMETER_HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


@pytest.fixture
def invoke():
    """Return what runs `edgemeter models ...` in this process; what it raises is raised."""
    return lambda *arguments: CliRunner().invoke(models, [str(argument) for argument in arguments], catch_exceptions=False)
