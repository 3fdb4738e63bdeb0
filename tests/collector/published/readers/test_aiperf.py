"""Facts about the reader of aiperf's export: what aiperf 0.13.0 wrote of four users of a server with known times."""

import json
from pathlib import Path

import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.collector.published import create, table_file

FILE = Path(__file__).parents[3] / "fixtures" / "published" / "aiperf.json"
DEFAULTS = {"source": "A bench", "version": "1", "date": "2026-11-26", "address": "https://example.org/bench", "device": "Board"}


def changed(**changes):
    """Return the rows of the export with other fields; None takes a field away."""
    document = json.loads(FILE.read_text()) | changes
    return create("aiperf").read(json.dumps({name: value for name, value in document.items() if value is not None}), DEFAULTS)


def figures(table):
    """Return the values by figure and statistic."""
    return {(row.figure, row.statistic): row.value for row in table.rows}


def test_every_statistic_of_a_figure_is_a_row():
    """Percentiles that are figures by themselves bear their names; a rate has one value."""
    values = figures(changed())
    assert values["ttft", "median"] == 104.1899
    assert values["ttft", "p99"] == 121.6837
    assert values["tpot", "mean"] == 11.371
    assert values["latency", "median"] == 821.1592
    assert (values["latency-p90", "p90"], values["latency-p99", "p99"], values["latency-mean", "mean"]) == (845.2546, 862.8036, 822.2467)
    assert values["latency", "max"] == 864.7023
    assert values["output-tokens", None] == 306.8884
    assert values["user-tokens", "mean"] == 88.0266
    assert values["throughput", None] == 4.7951
    assert len(values) == 4 * 7 + 2


def test_a_row_has_the_facts_of_the_run():
    """As the export states them; what it does not state is none."""
    table = table_file.read_any(FILE, None, DEFAULTS)
    row = next(row for row in table.rows if (row.figure, row.statistic) == ("ttft", "median"))
    assert (row.model, row.concurrency, row.prompt_tokens, row.output_tokens, row.count) == ("paced", 4, 63, 64, 60)
    assert (row.software, row.unit) == ("aiperf 0.13.0", "ms")
    assert row.conditions == "aiperf 0.13.0, completions, streamed, closed loop, 4 users"
    assert (row.precision, row.backend, row.batch, row.scope) == (None, None, None, None)
    assert [row.unit for row in table.rows if row.figure in ("throughput", "output-tokens")] == ["tokens/s", "requests/s"]
    assert len({row.id for row in table.rows}) == len(table.rows)


def test_metrics_that_are_no_figures_are_named():
    """Nothing is dropped in silence."""
    assert changed().left_out == ("other metrics: no figures of a run here: benchmark_duration, http_req_duration, time_to_second_token",)


def test_failed_requests_and_an_early_end_stand_in_the_conditions():
    """Rates of a run that lost requests are not those of one that answered all."""
    failed = changed(error_request_count={"unit": "requests", "avg": 5.0}, was_cancelled=True)
    assert failed.rows[0].conditions.endswith("4 users, 5 requests failed, which are in no figure, ended early")


def test_lengths_that_differ_are_a_range():
    """They are no length of a row."""
    lengths = {"unit": "tokens", "avg": 100.0, "min": 12.0, "max": 300.0}
    row = changed(input_sequence_length=lengths).rows[0]
    assert row.prompt_tokens is None
    assert "12 to 300 prompt tokens" in row.conditions


@pytest.mark.parametrize(
    ("phase", "users", "words"),
    [
        ({"type": "concurrency", "concurrency": 1}, 1, "closed loop, 1 user"),
        ({"type": "poisson", "rate": 3.5}, None, "open loop, 3.5 requests/s"),
        ({"type": "fixed_schedule"}, None, "load by fixed schedule"),
        ({"type": "concurrency", "concurrency": {"start": 1}}, None, "load not stated"),
    ],
)
def test_a_load_is_named_as_it_was_offered(phase, users, words):
    """Only users of a closed loop are a concurrency."""
    row = changed(input_config={"models": {"items": [{"name": "m"}]}, "phases": [{"kind": "profiling", **phase}]}).rows[0]
    assert (row.concurrency, row.conditions) == (users, f"aiperf 0.13.0, {words}")


def test_an_export_of_an_older_release_is_read():
    """It names the model in its endpoint, and the users with the load."""
    older = {"endpoint": {"model_names": ["Qwen/Qwen3-0.6B"], "type": "chat", "streaming": True}, "loadgen": {"concurrency": 10}}
    row = changed(input_config=older, aiperf_version=None).rows[0]
    assert (row.model, row.concurrency, row.conditions) == ("Qwen/Qwen3-0.6B", 10, "aiperf, chat, streamed, closed loop, 10 users")


def test_figures_that_several_models_share_need_a_name():
    """Which one answered is not stated: the user names the mixture, or the rows are left out."""
    both = {"models": {"items": [{"name": "a"}, {"name": "b"}]}}
    assert changed(input_config=both).rows == ()
    assert "model" in changed(input_config=both).left_out[0]


def test_a_metric_without_a_known_statistic_or_unit_is_left_out():
    """It is named with its place."""
    table = changed(time_to_first_token={"unit": "ms", "std": 1.0}, request_throughput={"unit": "furlongs", "avg": 2.0})
    assert any(line.startswith("time_to_first_token: it has none") for line in table.left_out)
    assert any(line.startswith("request_throughput, avg: unit 'furlongs'") for line in table.left_out)


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{", '{"input_config": 3}', '{"input_config": {}, "time_to_first_token": {"unit": "ms", "avg": "fast"}}', "[" * 100_000],
)
def test_a_damaged_export_is_one_clear_error(text):
    """It says what to give."""
    with pytest.raises(ConfigError, match=r"not an export of aiperf: .*profile_export_aiperf\.json"):
        create("aiperf").read(text, DEFAULTS)


def test_other_json_is_not_recognised():
    """Neither by its name nor by a word in it."""
    reader = create("aiperf")
    assert reader.recognises("profile_export_aiperf.json", FILE.read_text())
    assert not reader.recognises("results.json", '{"input_config": {}}')
    assert not reader.recognises("aiperf.csv", FILE.read_text())


def test_the_telemetry_of_gpus_is_named():
    """It is of the server, and of no request."""
    telemetry = {"endpoints": {"localhost:9400": {"gpus": {"gpu_0": {"metrics": {"gpu_power_usage": {"unit": "W", "avg": 61.0}}}}}}}
    (reason,) = changed(telemetry_data=telemetry).left_out
    assert "telemetry_data" in reason
