"""Facts about the page of two runs: only what differs, both curves in one chart, and an interval only where runs support it."""

import msgspec
import numpy as np
import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract import record_conditions, record_figures, samples
from edgemeter.collector.web.pair import pair_view
from edgemeter.collector.web.queries import CaseFilter
from edgemeter.collector.web.view import ViewRequest
from tests.fixtures.comparison_factory import make_run
from tests.fixtures.ledgers import fill
from tests.fixtures.record_factory import make_accuracy, make_energy, make_environment, make_latency
from tests.fixtures.rows import table_row
from tests.fixtures.served_page import served, view_context

S, DAY_NS = 1_000_000_000, 86_400 * 1_000_000_000


def traced(scale, watts, **fields):
    """Return a run with raw latencies around `scale` ms and the readings of one power sensor, from 2 s before its first query."""
    latencies = (np.linspace(0.8, 1.2, 50) * scale * 1e6).astype(np.int64)
    series = (
        samples.pack("latency", "ns", latencies),
        samples.pack("power.ina", "W", np.full(40, watts)),
        samples.pack("power_at.ina", "ns", np.linspace(-2 * S, 2 * S, 40).astype(np.int64)),
    )
    return make_run(samples=series, power_traces=(record_figures.PowerTrace(name="ina"),), **fields)


def two(**of_b):
    """Return two runs of one model that differ in the version of the runtime and in what `of_b` says."""
    return [traced(12, 5.0, id="a"), traced(10, 6.0, id="b", version="1.23.0", **of_b)]


def page_of(runs, a="a", b="b"):
    """Return the view of two runs and its charts."""
    with view_context(runs) as context:
        return pair_view(context, ViewRequest("pair", {"a": a, "b": b}), CaseFilter()), context.sheet.charts


def rows_of(view, table):
    """Return the rows of a table of a view."""
    return {row[next(iter(row))] if table == 0 else row["fact"]: row for row in view.tables[table].dicts()}


def test_only_facts_that_differ_are_listed_and_the_others_are_counted():
    """A setting, a version and a condition of one of them; each library is a fact of its own."""
    hot = (record_conditions.Condition(when="during", temperatures_c={"soc": 71.0}, governor="performance"),)
    of_a, of_b = two(conditions=hot, environment=make_environment(kernel="6.13.0", libraries={"numpy": "2.4.6", "blas": "3"}))
    view, _ = page_of([of_a, of_b])
    facts = rows_of(view, 1)
    assert {"Runtime version", "Kernel", "blas", "Temperature"} <= set(facts)
    assert not {"numpy", "Threads", "Precision", "Device"} & set(facts)
    assert (facts["Runtime version"]["a"], facts["Runtime version"]["b"]) == (of_a.runtime.version, "1.23.0")
    assert facts["blas"]["a"] is None
    assert "facts are equal" in view.body
    folded = str(view.body).partition('<details class="equal">')[2]
    assert "2.4.6" in folded
    assert "6.13.0" not in folded


def test_two_runs_alone_have_a_ratio_and_no_interval():
    """By hand: 10 ms against 12.5 ms is 0.8; that of an accuracy is over images. Two runs of one case stand in the range of its runs."""
    runs = two(latency=make_latency(p50_ms=10.0, p50_low_ms=9.5, p50_high_ms=10.5))
    runs[0] = traced(12, 5.0, id="a", latency=make_latency(p50_ms=12.5, p50_low_ms=12.0, p50_high_ms=13.0))
    view, _ = page_of(runs)
    p50 = rows_of(view, 0)["Latency p50, ms"]
    assert (p50["a"], p50["b"], p50["change"]) == (12.5, 10.0, pytest.approx(0.8))
    assert (p50["low"], p50["high"]) == (None, None)
    assert "12.0 to 13.0" in view.body
    scores = [make_accuracy(value=value, low=value - 0.03, high=value + 0.03) for value in (0.62, 0.50)]
    view, _ = page_of([msgspec.structs.replace(run, accuracy=score) for run, score in zip(two(), scores, strict=True)])
    row = rows_of(view, 0)["AP"]
    assert row["change"] == pytest.approx(-0.12)
    assert row["low"] < -0.12 < row["high"] < 0
    runs = [
        make_run(id=f"r{index}", started_at_ns=(20_000 + index) * DAY_NS, latency=make_latency(p50_ms=12.0 + index)) for index in range(4)
    ]
    view, _ = page_of(runs, "r0", "r2")
    assert rows_of(view, 0)["Latency p50, ms"]["range"] == "12.0 to 15.0 over 4 runs"


def test_over_all_runs_of_both_cases_the_ratio_has_the_interval_of_the_comparison():
    """Six runs on six days each, B a fifth faster."""
    runs = [
        make_run(id=f"{name}{day}", started_at_ns=(20_000 + day) * DAY_NS, version=version,
                 latency=make_latency(p50_ms=p50 * (1 + 0.002 * day)))
        for name, version, p50 in (("a", "1.22.1", 12.5), ("b", "1.23.0", 10.0)) for day in range(6)
    ]  # fmt: skip
    view, _ = page_of(runs, "a0", "b0")
    judged = rows_of(view, 0)["Latency p50, ms"]["cases"]
    assert judged.startswith("0.800")
    assert judged.endswith("faster")
    low, high = (float(end) for end in judged.partition("95% ")[2].partition(":")[0].split(" to "))
    assert low < 0.8 < high
    assert "6 runs against 6 runs" in view.body


def test_energies_of_other_meters_and_runs_of_other_loads_have_no_ratio():
    """An energy at another scope says why; another scenario, or an invalid run, leaves no ratio at all."""
    meter, load, ruined = (
        two(energy=make_energy(scope="module")),
        two(scenario="offline"),
        two(verdict=record_conditions.Verdict(state="invalid")),
    )
    view, _ = page_of(meter)
    assert rows_of(view, 0)["Energy per inference, gross, mJ"]["change"] is None
    assert "are not compared" in view.body
    assert rows_of(view, 0)["Latency p50, ms"]["change"] is not None
    for runs, words in ((load, "differ in scenario"), (ruined, "invalid")):
        with table_row(words):
            view, _ = page_of(runs)
            assert words in view.body
            assert "change" not in view.tables[0].columns
            assert rows_of(view, 0)["Latency p50, ms"]["a"] is not None


def test_distributions_and_power_curves_of_both_stand_in_one_chart_each():
    """On one scale; power from the first timed query on, in seconds."""
    _, (distribution, power) = page_of(two())
    shares = distribution.table.dicts()
    assert {row["series"] for row in shares} == {"A", "B"}
    assert max(row["value"] for row in shares if row["series"] == "A") == pytest.approx(14.4)
    curves = {
        name: [(row["at_s"], row["power_w"]) for row in power.table.dicts() if row["series"] == name] for name in ("A, ina", "B, ina")
    }
    assert (curves["A, ina"][0], curves["B, ina"][-1]) == ((-2.0, 5.0), (2.0, 6.0))
    assert distribution.legend[0][1] == power.legend[0][1] != power.legend[1][1] == distribution.legend[1][1]


def test_a_run_that_is_not_there_and_two_models_are_a_clear_line():
    """Not a page of figures that mean nothing."""
    other = make_run(id="c", model="wide-detector")
    for ids, words in ((("a", "nobody"), "there is no run 'nobody'"), (("a", "c"), "pick two of one model"), (("a", "a"), "the same run")):
        with table_row(words), pytest.raises(ConfigError, match=words):
            page_of([*two(), other], *ids)
    assert "Tick two runs" in page_of(two(), "a", "")[0].body


@pytest.mark.chromium
def test_two_ticked_runs_are_compared_and_a_run_offers_others(browser, tmp_path):
    """By two ticks in the list of a device, a third takes the place of the first; and by the choice on a run's page."""
    runs = [*two(device="pi-1"), traced(12, 5.0, id="c", version="1.24.0")]
    with served(fill(tmp_path / "ledger.sqlite", runs)) as server:
        page = browser.open(f"{server.url}device?device={runs[0].device}")
        tick = "document.querySelector('#runs tr[data-run=\"{}\"] input.tick')"
        for run in ("b", "a", "c"):
            page.click(tick.format(run))
        assert page.run("[...document.querySelectorAll('input.tick:checked')].map(one => one.value).sort()") == ["a", "c"]
        page.run("document.querySelector('.ticked a').click()")
        page.until("location.pathname === '/pair' && document.readyState === 'complete'")
        assert page.run("location.search") == "?a=a&b=c"
        page.drawn()
        assert page.fits()
        page.goto(f"{server.url}run?id=a")
        page.run("document.querySelector('form.pick').requestSubmit()")
        page.until("location.pathname === '/pair' && document.readyState === 'complete'")
        assert page.run("location.search") in {"?a=a&b=b", "?a=a&b=c"}
        assert page.complaints() == []
        page.close()
