from edgemeter.agent.contract import model_formats
from edgemeter.agent.generators import GENERATORS
from edgemeter.agent.runtimes import RUNTIMES


def test_every_generator_is_known():
    """What only generates needs no lengths to be recognised."""
    assert set(GENERATORS) - set(RUNTIMES) == model_formats.GENERATORS
