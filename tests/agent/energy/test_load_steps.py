"""Facts about `edgemeter.agent.energy.load_steps`."""

import pytest

from edgemeter.agent.base.errors import UnavailableError
from edgemeter.agent.energy import load_steps
from edgemeter.agent.energy.load_steps import switched_load


def test_a_load_whose_processes_do_not_start_is_no_load(monkeypatch):
    """A test with less load than it knows of would measure another sensor."""
    monkeypatch.setattr(load_steps, "READY_S", 0.0)
    with pytest.raises(UnavailableError, match="did not start within 0 s: end other work"), switched_load(1):
        pass
