from edgemeter.agent.contract import model_formats
from edgemeter.agent.generators import GENERATORS
from edgemeter.agent.runtimes import RUNTIMES


def test_every_generator_is_known():
    """A runtime that only generates is recognised without lengths."""
    assert set(GENERATORS) - set(RUNTIMES) == model_formats.GENERATORS
