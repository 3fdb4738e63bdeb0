import pytest

from tests.fixtures.otlp_server import otlp_server


@pytest.fixture
def endpoint():
    """Return a running OTLP endpoint."""
    with otlp_server() as server:
        yield server
