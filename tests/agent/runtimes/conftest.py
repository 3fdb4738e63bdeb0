"""The small models of the runtimes' tests, and runtimes that are closed at the end."""

import ctypes
import gc
from contextlib import ExitStack, closing
from pathlib import Path

import numpy as np
import pytest

from edgemeter.agent.contract import model_file
from edgemeter.agent.runtimes import Options, create


class _SignalStack(ctypes.Structure):
    """The stack_t of sigaltstack(2)."""

    _fields_ = (("address", ctypes.c_void_p), ("flags", ctypes.c_int), ("size", ctypes.c_size_t))


@pytest.fixture(autouse=True)
def _signal_stack():
    """Give the process the stack back that its signal handlers run on, which faulthandler sets.

    Each core of OpenVINO 2026.4.1 sets one of its own and puts back what it found: where the first
    core ends first, the last one puts back memory that is no longer there, and the next signal, a
    later test's Ctrl-C, kills the process with SIGSEGV.
    """
    libc, before, after = ctypes.CDLL(None), _SignalStack(), _SignalStack()
    libc.sigaltstack(None, ctypes.byref(before))
    yield
    libc.sigaltstack(None, ctypes.byref(after))
    if after.address != before.address:
        gc.collect()
        assert libc.sigaltstack(ctypes.byref(before), None) == 0


def named(model, **options):
    """Return options with the hash of the model, which opens a file that contains code."""
    return Options(sha256=model_file.sha256(model) if model.is_file() else None, **options)


@pytest.fixture(scope="session")
def models() -> Path:
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
    """Return a function that loads a model in the runtime of that name.

    The model is a fixture unless its path is given.
    """
    with ExitStack() as stack:

        def load(name, model, **options):
            runtime = stack.enter_context(closing(create(name)))
            return runtime, runtime.load(models / model, named(models / model, **options))

        yield load
