"""Facts about sweeps of a served model on the page of the model."""

import numpy as np
from msgspec.structs import replace

from edgemeter.agent.contract.record_figures import Load
from edgemeter.agent.contract.record_served import Served
from edgemeter.agent.engine.scenarios.latency_statistics import summarise_latency
from edgemeter.collector.web.site import show
from edgemeter.collector.web.view import read_address
from tests.fixtures.comparison_factory import day_by_day
from tests.fixtures.record_factory import make_generation, make_record
from tests.fixtures.served_page import view_context


def swept():
    """Return runs of one, two and four users of a server."""
    runs = [
        make_record(
            scenario="concurrent",
            load=Load(samples_per_query=1, samples=64, concurrency=users),
            generation=make_generation(
                is_local=False, output_tokens_per_s=90.0 * users**0.5, user_tokens_per_s=100.0 / users,
                ttft=summarise_latency(np.full(64, 40_000_000 * users)),
            ),
        )
        for users in (1, 2, 4)
    ]  # fmt: skip
    return [replace(run, id=f"run-{index}") for index, run in enumerate(day_by_day(runs))]


def test_the_page_of_a_model_shows_what_users_get_against_what_all_get():
    """The sentence as in the terminal, and a mark for each number of users with the line between them."""
    with view_context(swept()) as context:
        body = show(context, read_address("model")).body
        (chart,) = [chart for chart in context.sheet.charts if chart.title == "Tokens a user against tokens in all"]
    assert "gives most with 4 users: 180 output tokens/s in all, 25 a user" in body
    rows = chart.table.dicts()
    assert [(row["name"], row["user"], row["total"]) for row in rows] == [
        ("1 user", 100.0, 90.0),
        ("2 users", 50.0, rows[1]["total"]),
        ("4 users", 25.0, 180.0),
    ]
    assert [row["ttft_p90_ms"] for row in rows] == [40.0, 80.0, 160.0]
    # One number is no sweep.
    with view_context(swept()[:1]) as context:
        assert 'id="users"' not in show(context, read_address("model")).body


def test_a_served_model_shows_latency_against_requests():
    """It has no tokens: neither has the table a column of them."""
    runs = [
        replace(
            run, generation=None, served=Served(), throughput_per_s=40.0 * run.load.concurrency,
            latency=summarise_latency(np.full(64, 25_000_000)),
        )
        for run in swept()
    ]  # fmt: skip
    with view_context(runs) as context:
        body = show(context, read_address("model")).body
        (chart,) = [chart for chart in context.sheet.charts if chart.title == "Latency against requests answered"]
    assert "gives most with 4 users: 160 requests/s, latency p50 of 25 ms" in body
    rows = chart.table.dicts()
    assert [(row["name"], row["requests_per_s"], row["latency_p90_ms"]) for row in rows] == [
        ("1 user", 40.0, 25.0), ("2 users", 80.0, 25.0), ("4 users", 160.0, 25.0),
    ]  # fmt: skip
    assert not {"user", "total", "ttft_p50_ms"} & set(rows[0])
