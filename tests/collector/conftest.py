import uuid
from dataclasses import dataclass

import pytest

from edgemeter.collector.charts import vega
from edgemeter.collector.influx.bucket import Bucket
from edgemeter.collector.influx.influx_config import InfluxConfig
from tests.fixtures.postgresql import postgresql, postgresql_server
from tests.fixtures.publishing import started
from tests.fixtures.servers import Influx, mosquitto, running
from tests.isolation import needs_python_only

__all__ = ["postgresql", "postgresql_server"]


@dataclass(frozen=True)
class Place:
    """An InfluxDB 2 and the name of a bucket of one test's own."""

    server: Influx
    name: str

    def config(self, **changes):
        return InfluxConfig(
            **(
                {
                    "url": self.server.url,
                    "token": self.server.token,
                    "org": self.server.org,
                    "bucket": self.name,
                }
                | changes
            )
        )

    @property
    def url(self):
        return f"{self.server.url}?org={self.server.org}&bucket={self.name}"

    def query(self, influxql):
        return self.server.query(influxql, self.name)


@pytest.fixture(autouse=True)
def short_script(request, monkeypatch):
    """Make the script of the charts a short one where no browser reads it.

    Bundling the real one takes seconds.
    """
    if needs_python_only(request.node):
        monkeypatch.setattr(vega, "bundle", lambda: "// charts")
        monkeypatch.setattr(vega, "bundle_name", lambda: "charts-0123456789abcdef.js")


@pytest.fixture(scope="session")
def influx2_server(influxd, tmp_path_factory):
    """Return a running InfluxDB 2."""
    with running(Influx(influxd, tmp_path_factory.mktemp("influx2"))) as server:
        yield server


@pytest.fixture(params=[pytest.param("influx2_server", marks=pytest.mark.influx)], ids=["influx"])
def influx_place(request, bucket_of):
    """Return a bucket of the test's own in a running InfluxDB 2.

    A test that uses it has the marker.
    """
    influx_place = Place(request.getfixturevalue(request.param), f"place-{uuid.uuid4().hex}")
    bucket_of(influx_place.config()).create(None)
    return influx_place


@pytest.fixture
def broker(tmp_path):
    with started(mosquitto(tmp_path)) as address:
        yield address


@pytest.fixture
def bucket_of():
    buckets = []

    def make(config):
        buckets.append(Bucket(config))
        return buckets[-1]

    yield make
    for bucket in buckets:
        bucket.close()
