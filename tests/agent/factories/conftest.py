"""A model that a factory made, driven by the runtime as a run drives it."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from edgemeter.agent.runtimes import Loaded, Options
from edgemeter.agent.runtimes.python_factory import PythonFactory

NETS = Path(__file__).with_name("nets.py")


class Driven:
    """A loaded model: its facts, and the outputs of one query."""

    def __init__(self, runtime: PythonFactory, loaded: Loaded) -> None:
        self.runtime, self.loaded = runtime, loaded

    def __call__(self, *arrays: np.ndarray) -> list[np.ndarray]:
        """Return the outputs for these inputs."""
        self.runtime.bind(list(arrays))()
        return self.runtime.outputs()

    def facts(self) -> dict[str, str]:
        """Return what the model reports after it ran."""
        return dict(self.runtime.late_facts())


@pytest.fixture
def drive(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Driven]]:
    """Return what loads a model of a factory, by its name and options; all are closed in the end."""
    runtimes: list[PythonFactory] = []
    # A factory sets variables before it imports its framework.
    for name in ("NPROC", "HF_HUB_OFFLINE", "HF_HUB_DISABLE_TELEMETRY"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setattr(sys, "path", list(sys.path))

    def load(factory: str, backend: str | None = None, threads: int = 1, **options: object) -> Driven:
        runtimes.append(PythonFactory())
        settings = Options(threads=threads, backend=backend, extra={name: str(value) for name, value in options.items()})
        return Driven(runtimes[-1], runtimes[-1].load(Path(f"edgemeter.agent.factories.{factory}:make"), settings))

    yield load
    # Each entered inference mode within that of the one before.
    for runtime in reversed(runtimes):
        runtime.close()
