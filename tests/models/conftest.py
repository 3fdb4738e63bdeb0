"""Fixtures of the tests of models: a server, an empty home, and the command."""

from contextlib import closing

import pytest
from click.testing import CliRunner

from edgemeter.agent import runtimes
from edgemeter.models.catalogue import add
from edgemeter.models.cli.main import models
from tests.fixtures.file_server import ListeningFileServer, connected


@pytest.fixture
def server(monkeypatch):
    return connected(monkeypatch)


@pytest.fixture
def listening():
    """Return one at a port, for other processes."""
    with closing(ListeningFileServer()) as running:
        yield running


@pytest.fixture(autouse=True)
def home(monkeypatch, tmp_path):
    """Return an empty home; no proxy of this machine stands between test and server."""
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    for name in ("EDGEMETER_CATALOGUE", "EDGEMETER_MODELS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("EDGEMETER_HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


@pytest.fixture
def inspected_here(monkeypatch):
    """Inspect added models in this process, by their real runtime.

    Otherwise each would be inspected in a sandbox of its own.
    """

    def inspect(model, name):
        runtime = runtimes.create(name)
        try:
            return runtime.load(model, runtimes.Options())
        finally:
            runtime.close()

    monkeypatch.setattr(add, "inspect", inspect)


@pytest.fixture
def invoke():
    """Return what runs `edgemeter models ...` in this process; what it raises is raised."""
    return lambda *arguments: CliRunner().invoke(
        models, [str(argument) for argument in arguments], catch_exceptions=False
    )
