"""Where the small models of the runtimes' tests lie."""

from pathlib import Path

import numpy as np
import pytest


@pytest.fixture(scope="session")
def models() -> Path:
    """Return the folder of fixtures; `make_*.py` there make them."""
    return Path(__file__).resolve().parents[2] / "fixtures" / "runtimes"


@pytest.fixture
def x():
    """Return the input of the fixtures: float32 [1, 4], 0 to 3."""
    return np.array([[0, 1, 2, 3]], np.float32)
