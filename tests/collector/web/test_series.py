import re
import time

import pytest

from edgemeter.collector.demo import simulated_fleet
from edgemeter.collector.show import plot
from edgemeter.collector.web import queries
from edgemeter.collector.web.context import NoEvents, SeriesEvent, ViewContext
from edgemeter.collector.web.events import open_events
from edgemeter.collector.web.queries import NS_PER_DAY, CaseFilter
from edgemeter.collector.web.run_index import open_index
from edgemeter.collector.web.series import METRICS, series, trend_view
from edgemeter.collector.web.sources import DocumentSource
from edgemeter.collector.web.view import FileLinks, ServedLinks, ViewRequest, address, read_address
from tests.fixtures.record_factory import make_record


class Found(NoEvents):
    """A step that was found."""

    def of(self, _run, _metric):
        """Return it, of every series."""
        return (SeriesEvent(1, "step of +6 %, 95 %: 5 to 7 %", "step"),)


@pytest.fixture
def drawn(fleet_index):
    """Return what draws the series of a device and metric."""

    def draw(device, metric, events=None):
        with fleet_index.reading() as connection:
            members = queries.cases(connection, CaseFilter(device=device, precision="fp32"))
            held = ViewContext(connection, fleet_index.source, ServedLinks(), events or NoEvents())
            return series(held, members, METRICS[metric], days=None, span=None)

    return draw


def test_every_run_is_a_dot_that_leads_to_it(drawn):
    """Twelve days, twelve runs."""
    shown = drawn("simulated-pi5-01", "p50_ms")
    assert shown.points == 12
    assert len(re.findall(r'href="/run\?id=simulated-pi5-01-', shown.figure)) == 12


def test_an_update_of_the_firmware_stands_beside_the_series(drawn):
    """The Pi boards were updated on day 60 of 90, the others were not."""
    assert "firmware 2026-05-11 to 2026-08-20" in drawn("simulated-pi5-01", "p50_ms").figure
    assert "firmware" not in drawn("simulated-orin-01", "p50_ms").figure


def test_what_was_found_elsewhere_is_told_in_its_words(drawn):
    """A step carries its size and its interval."""
    assert "step of +6 %, 95 %: 5 to 7 %" in drawn("simulated-orin-01", "p50_ms", Found()).figure


def test_energies_have_their_interval_and_a_share_has_none(drawn):
    """Twelve bars of energies; the share of throttled runs begins at zero."""
    assert drawn("simulated-pi5-01", "gross_mj").figure.count('class="interval') == 12
    assert 'class="interval' not in drawn("simulated-pi5-19", "throttled_ratio").figure


def test_simulated_series_say_so(drawn):
    """Provenance stands in the heading."""
    assert "replayed</figcaption>" in drawn("simulated-pi5-01", "p50_ms").figure


@pytest.mark.parametrize(
    "ats", [[5.0], [5.0, 5.0], [1.0, 2e18], [0.0, 90.0 * NS_PER_DAY], [0.0, 3.6e12]], ids=["one", "same", "ages", "days", "an hour"]
)
def test_any_span_of_time_is_drawn_with_finite_numbers(ats):
    """One run, several of one moment, or years: every coordinate is a number within the sheet."""
    svg = plot.over_time("title", "ms", [plot.PlotDot(at, 1.0 + index) for index, at in enumerate(ats)])
    numbers = [float(value) for value in re.findall(r'(?:x1|x2|y1|y2)="([^"]*)"', svg)]
    assert numbers
    assert all(-1 <= value <= 441 for value in numbers)
    assert "nan" not in svg


def test_thinning_keeps_the_outliers():
    """Of 100,000 values the one peak and the one dip stay."""
    values = [1.0] * 100_000
    values[777], values[50_001] = 9.0, 0.1
    kept = plot.thinned(values, 1000)
    assert len(kept) <= 1001
    assert (777, 9.0) in kept
    assert (50_001, 0.1) in kept


def test_an_address_is_the_same_whatever_the_order_of_its_fields():
    """Hostile text goes there and back."""
    fields = {"model": "a&b=c #?/<x>", "device": "pi 1"}
    assert address("compare", fields) == address("compare", dict(reversed(fields.items())))
    assert read_address(address("compare", fields)).fields == fields


def test_a_file_links_only_to_what_it_holds():
    """Elsewhere the text stands alone."""
    links = FileLinks({"run?id=a"})
    assert links.to("run", id="a") == "#/run?id=a"
    assert links.to("run", id="b") is None


def test_the_trend_begins_with_what_moved_and_shows_every_type_of_board():
    """The boards that were updated stand before those that were not, though their names come later."""
    records = tuple(simulated_fleet.records_of(make_record(), end_ns=time.time_ns(), days=45))
    index = open_index(DocumentSource(records))
    index.refresh()
    events = open_events(index)
    events.refresh()
    with index.reading() as connection:
        view = trend_view(ViewContext(connection, index.source, ServedLinks(), events), ViewRequest("trend"), CaseFilter())
    index.close()
    devices = re.findall(r'data-device="(simulated-[a-z0-9]+)-\d+"', str(view.body))
    assert set(devices) == {"simulated-server", "simulated-pi5", "simulated-orin"}
    assert devices == sorted(devices, key=lambda name: name != "simulated-pi5")
