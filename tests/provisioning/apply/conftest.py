"""The bench of these tests."""

import contextlib

import pytest

from tests.provisioning.apply.bench import Bench


@pytest.fixture
def bench(tmp_path):
    """Return a bench; its sshd ends with the test."""
    with contextlib.closing(Bench(tmp_path)) as bench:
        yield bench
