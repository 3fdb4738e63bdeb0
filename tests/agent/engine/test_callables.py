"""Facts about the identity of a callable.

It has a name, and a hash that is the same for the same work in any process.
"""

import functools
import subprocess
import sys

import numpy as np
import pytest

from edgemeter.agent.engine.callables import name_of, sha256_of
from tests.fixtures.rows import table_row

SCALE = 2


def scaled(value):
    return SCALE * value


def closure_over(value):
    return lambda: value


def test_a_function_is_named_after_its_module_and_itself():
    """A partial is named after the function that it calls.

    A lambda is named after its hash, so that two of them are two cases.
    """
    assert name_of(scaled).endswith("test_callables.scaled")
    assert name_of(functools.partial(scaled, 1)) == name_of(scaled)
    assert name_of(sum) == "sum"
    assert name_of(closure_over(1)) != name_of(closure_over(2))
    assert name_of(closure_over(1)).startswith("lambda ")


def test_the_hash_follows_what_the_function_does(monkeypatch):
    """The hash covers its code, the values that it refers to, and the shapes of arrays.

    It covers neither where the function was made nor the values of arrays.
    """
    assert sha256_of(closure_over(1)) == sha256_of(closure_over(1))
    different = [
        (closure_over(1), closure_over(2)),
        (closure_over(scaled), closure_over(sum)),
        (functools.partial(scaled, 1), functools.partial(scaled, 2)),
        (closure_over(np.ones(2)), closure_over(np.ones(3))),
        (lambda: 1, lambda: 2),
        ((1,), (2,)),
        ("a", "b"),
    ]
    for function, other in different:
        with table_row(function):
            assert sha256_of(function) != sha256_of(other)
    assert sha256_of(closure_over(np.ones(2))) == sha256_of(closure_over(np.zeros(2)))
    before = sha256_of(scaled)
    monkeypatch.setitem(globals(), "SCALE", 3)
    assert sha256_of(scaled) != before


@pytest.mark.services
def test_another_process_computes_the_same_hash():
    """Otherwise no run of a later day would be of the same case."""
    code = (
        "import functools, json; from edgemeter.agent.engine.callables import sha256_of\n"
        "def f(x, *, n=3):\n    return json.dumps([y for y in x if y in {'a', 'b'}])\n"
        "print(sha256_of(functools.partial(f, ['a'])))"
    )
    hashes = {
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout
        for _ in range(3)
    }
    assert len(hashes) == 1
