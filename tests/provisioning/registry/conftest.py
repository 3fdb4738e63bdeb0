import pytest

from edgemeter.provisioning.registry.registry import Registry


@pytest.fixture
def registry(tmp_path):
    with Registry(tmp_path / "registry.sqlite") as opened:
        yield opened
