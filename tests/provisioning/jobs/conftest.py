import pytest

from edgemeter.provisioning.serve.content_store import ContentStore
from tests.fixtures.job_bench import Bench


@pytest.fixture
def store(tmp_path):
    return ContentStore(tmp_path / "content")


@pytest.fixture
def bench(request, tmp_path):
    """Return a bench, the `World` of a module that has one."""
    bench = getattr(request.module, "World", Bench)(tmp_path)
    yield bench
    bench.registry.close()
