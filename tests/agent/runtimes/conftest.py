"""The small models of the runtimes' tests, and runtimes that are closed at the end."""

from contextlib import ExitStack, closing
from pathlib import Path

import numpy as np
import pytest

from edgemeter.agent.runtimes import Options, create


@pytest.fixture(scope="session")
def models() -> Path:
    """Return the folder of fixtures; `make_*.py` there make them."""
    return Path(__file__).resolve().parents[2] / "fixtures" / "runtimes"


@pytest.fixture
def x():
    """Return the input of the fixtures: float32 [1, 4], 0 to 3."""
    return np.array([[0, 1, 2, 3]], np.float32)


@pytest.fixture
def runtime(request):
    """Return a runtime of the class that the module calls RUNTIME."""
    with closing(request.module.RUNTIME()) as runtime:
        yield runtime


@pytest.fixture
def opened(models):
    """Return a function that loads a model, of the fixtures unless its path is given, in the runtime of that name."""
    with ExitStack() as stack:

        def load(name, model, **options):
            runtime = stack.enter_context(closing(create(name)))
            return runtime, runtime.load(models / model, Options(**options))

        yield load
