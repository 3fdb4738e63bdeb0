"""Facts about the page of one model: what sweeps over the depth and over power modes show."""

import msgspec

from edgemeter.collector.web.model import model_view
from edgemeter.collector.web.queries import CaseFilter
from edgemeter.collector.web.view import ViewRequest
from tests.fixtures.record_factory import make_environment, make_generation, make_latency, make_model, make_record, make_runtime
from tests.fixtures.served_page import view_context


def run_at(depth, tpot_ms, **changes):
    """Return a run of a language model at this depth."""
    generation = make_generation(depth_tokens=depth, prompt_tokens=0, ttft=None, tpot=make_latency(p50_ms=tpot_ms))
    data = msgspec.structs.replace(make_record().dataset, sha256=f"{depth or 0:064x}")
    return make_record(model=make_model(name="qwen", task="generation"), generation=generation, dataset=data, **changes)


def page_of(*runs):
    """Return the page of the model."""
    with view_context([*runs, run_at(0, 5.0, device="server", role="reference")]) as context:
        return str(model_view(context, ViewRequest("model"), CaseFilter(model="qwen")).body)


def test_cases_that_differ_in_their_depth_alone_are_a_line_over_it():
    """With two depths or more; cases of another number of threads are a line of their own, or none where they have one depth."""
    text = page_of(run_at(4096, 50.0), run_at(0, 20.0), run_at(1024, 25.0), run_at(0, 9.0, runtime=make_runtime(threads=8)))
    section = text[text.index("Decoding over the depth") :]
    assert "Time per output token over the depth" in section
    begin = section.index('class="chart-data">') + len('class="chart-data">')
    document = msgspec.json.decode(section[begin : section.index("</script>", begin)])
    rows = [dict(zip(document["columns"], row, strict=True)) for row in document["rows"]]
    assert [(row["depth"], row["value"]) for row in rows] == [(0, 20.0), (1024, 25.0), (4096, 50.0)]
    assert "Decoding over the depth" not in page_of(run_at(0, 20.0), run_at(1024, 25.0, runtime=make_runtime(threads=8)))


def test_power_modes_of_one_board_are_answered_in_a_sentence():
    """One mode has no answer."""
    runs = [
        run_at(0, tpot_ms, environment=make_environment(power_mode=mode), id=f"{mode}{number}")
        for mode, tpot_ms in (("0 15W", 20.0), ("1 25W", 10.0))
        for number in range(3)
    ]
    assert "Power modes and clocks" in (text := page_of(*runs))
    assert "pi-1 · qwen 11 at depth 0, fp32, onnx, graph_optimisation all: fastest, not clearly apart: 15W (100 tokens/s), 25W" in text
    assert "Power modes and clocks" not in page_of(*runs[:3])
