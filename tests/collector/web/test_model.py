"""Facts about the page of one model: what a sweep over the depth shows."""

import msgspec

from edgemeter.collector.web.model import model_view
from edgemeter.collector.web.queries import CaseFilter
from edgemeter.collector.web.view import ViewRequest
from tests.fixtures.record_factory import make_generation, make_latency, make_model, make_record, make_runtime
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
