"""What the tests of the collector share: a broker, and a real InfluxDB of either major version, for tests that hold for both."""

import uuid
from dataclasses import dataclass

import pytest

from edgemeter.collector.charts import vega
from edgemeter.collector.influx.influx_config import InfluxConfig
from edgemeter.collector.influx.sink import open_sink
from tests.fixtures.influx1 import Influx1
from tests.fixtures.postgresql import postgresql, postgresql_server
from tests.fixtures.publishing import started
from tests.fixtures.servers import Influx, mosquitto, running
from tests.isolation import needs_python_only

__all__ = ["postgresql", "postgresql_server"]


@dataclass(frozen=True)
class Place:
    """An InfluxDB and a place in it of one test's own; the version is 1 or 2."""

    version: int
    server: Influx | Influx1
    name: str

    def config(self, **changes):
        """Return how the place is reached, with changes."""
        if self.version == 1:
            return InfluxConfig(**({"url": self.server.url, "token": "", "database": self.name} | changes))
        reached = {"url": self.server.url, "token": self.server.token, "org": self.server.org, "bucket": self.name}
        return InfluxConfig(**(reached | changes))

    def query(self, influxql):
        """Return the rows of an InfluxQL query."""
        return self.server.query(influxql, self.name)


@pytest.fixture(autouse=True)
def short_script(request, monkeypatch):
    """Make the script of the charts a short one where no browser reads it: to bundle it takes seconds."""
    if needs_python_only(request.node):
        monkeypatch.setattr(vega, "bundle", lambda: "// charts")
        monkeypatch.setattr(vega, "bundle_name", lambda: "charts-0123456789abcdef.js")


@pytest.fixture(scope="session")
def influx2_server(influxd, tmp_path_factory):
    """Return a running InfluxDB 2."""
    with running(Influx(influxd, tmp_path_factory.mktemp("influx2"))) as server:
        yield server


@pytest.fixture(scope="session")
def influx1_server(influxd1, tmp_path_factory):
    """Return a running InfluxDB 1."""
    with running(Influx1(influxd1, tmp_path_factory.mktemp("influx1"))) as server:
        yield server


@pytest.fixture(params=[pytest.param(2, marks=pytest.mark.influx), pytest.param(1, marks=pytest.mark.influx1)], ids=["influx2", "influx1"])
def influx_place(request):
    """Return a place of the test's own in each InfluxDB in turn; it is made by the first write."""
    server = request.getfixturevalue(f"influx{request.param}_server")
    return Place(request.param, server, f"place-{uuid.uuid4().hex}")


@pytest.fixture
def broker(tmp_path):
    """Return the address of a running mosquitto."""
    with started(mosquitto(tmp_path)) as address:
        yield address


@pytest.fixture
def sink_of():
    """Return a maker of sinks that closes them."""
    sinks = []

    def make(config):
        sinks.append(open_sink(config))
        return sinks[-1]

    yield make
    for sink in sinks:
        sink.close()
