"""A runtime that works outside its timed call is found, whatever it is that does the work; one that works in it is not accused."""

import os
import subprocess
import sys
from contextlib import ExitStack

import numpy as np
import pytest

from edgemeter.agent import runtimes
from edgemeter.agent.conformance.promise import ContractViolationError
from edgemeter.agent.conformance.runtimes import CHECKS, RuntimeCase, constructing_imports_no_library, the_call_does_the_work
from tests.fixtures import misplaced_work
from tests.fixtures.misplaced_work import Misplaced, X
from tests.requirements import ROOT

pytestmark = pytest.mark.slow
PLANTS = {
    "bind": "bind computes nothing: bind takes",
    "thread from bind": "bind (starts|computes) nothing: ",
    "thread": "the call waits until its results are there: bind takes",
    "thread that nobody waits for": "the call waits until its results are there: outputs somewhat later are others",
    "half in a thread": "the call waits until its results are there: bind takes",
    "outputs": "outputs compute nothing: bind takes",
    "lazy outputs": "outputs compute nothing: bind takes",
    "first call": "keeps no result: when repeated the call takes",
    "first call by values": "keeps no results by their inputs: on inputs that were bound before the call takes",
}


@pytest.fixture
def case(tmp_path, monkeypatch):
    """Return a function that gives the case of a runtime which works where it says."""
    small, large = misplaced_work.models(tmp_path)

    def planted(at, kind=Misplaced, **settings):
        monkeypatch.setitem(runtimes.RUNTIMES, "misplaced", f"{misplaced_work.__name__}:{kind.__name__}")
        monkeypatch.setattr(kind, "at", at)
        return RuntimeCase("misplaced", small, (X,), (2 * X + 1,), **{"large": (large, (X,)), **settings})

    return planted


@pytest.fixture(params=["alone", "beside others"])
def load(request):
    """Let other processes use every core twice, or none."""
    with ExitStack() as stack:
        for _ in range(2 * (os.cpu_count() or 1) if request.param == "beside others" else 0):
            process = stack.enter_context(subprocess.Popen([sys.executable, "-c", "while True: pass"]))
            stack.callback(process.kill)
        yield


@pytest.mark.parametrize(("at", "words"), PLANTS.items())
@pytest.mark.usefixtures("load")
def test_work_outside_the_call_is_found(case, at, words, tmp_path):
    """Also on a machine whose cores are all busy."""
    with pytest.raises(ContractViolationError, match=words):
        the_call_does_the_work(case(at), tmp_path)


@pytest.mark.usefixtures("load")
def test_a_call_that_does_the_work_is_not_accused(case, tmp_path):
    """The same runtime, in its right form."""
    the_call_does_the_work(case("call"), tmp_path)


# In a process of its own: where JAX was imported, every fork warns.
JAX = """
import sys
from pathlib import Path
from edgemeter.agent.conformance.promise import ContractViolationError
from edgemeter.agent.conformance.runtimes import RuntimeCase, the_call_does_the_work
from edgemeter.agent.runtimes import RUNTIMES
from tests.fixtures import misplaced_work
folder = Path(sys.argv[1])
small, large = misplaced_work.models(folder)
RUNTIMES["misplaced"] = "tests.fixtures.misplaced_work:OfJax"
for at in ("jax", "jax, waited for"):
    misplaced_work.OfJax.at = at
    x = misplaced_work.X
    try:
        the_call_does_the_work(RuntimeCase("misplaced", small, (x,), (2 * x + 1,), large=(large, (x,))), folder)
        print("passes")
    except ContractViolationError as error:
        print(error)
"""


@pytest.mark.needs(module="jax")
@pytest.mark.usefixtures("load")
def test_jax_is_found_where_nothing_waits_for_it(tmp_path):
    """Its call returns while the work goes on, on the processor too; with `block_until_ready` it keeps the promise."""
    command = [sys.executable, "-W", "ignore", "-c", JAX, tmp_path]
    completed = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, timeout=600)
    assert completed.returncode == 0, completed.stderr
    asynchronous, waited_for = completed.stdout.splitlines()
    assert asynchronous.startswith("the call waits until its results are there: bind takes")
    assert waited_for == "passes"


@pytest.mark.parametrize("at", [at for at in PLANTS if at not in {"thread that nobody waits for", "lazy outputs"}])
def test_all_other_checks_pass(case, at, tmp_path):
    """It is this one alone that finds them: a small model, or values that are right in the end, show nothing."""
    for check in CHECKS:
        if check in (the_call_does_the_work, constructing_imports_no_library):
            continue
        folder = tmp_path / check.__name__
        folder.mkdir()
        check(case(at), folder)


def test_a_model_by_which_nothing_shows_is_asked_for_another(case, tmp_path):
    """No evidence is no pass: the message says what to give."""
    with pytest.raises(ContractViolationError, match="give the case `large`, a model that takes longer"):
        the_call_does_the_work(case("call", large=None), tmp_path)


def test_outputs_are_arrays_and_an_error_shows_no_picture(case, tmp_path):
    """What is lazy is none; of large outputs shapes are shown, and no values."""
    computes = next(check for check in CHECKS if check.__name__ == "the_call_computes_and_outputs_are_copies")
    with pytest.raises(ContractViolationError, match=r"outputs are numpy's arrays, not \['Lazy'\]"):
        computes(case("lazy outputs"), tmp_path)
    wrong = RuntimeCase("misplaced", case("call").model, (X,), (np.zeros((1, 64), np.float32),))
    with pytest.raises(ContractViolationError, match=r"outputs are float32 \[1, 64\], float32 \[1, 64\] is right"):
        computes(wrong, tmp_path)
