"""Facts about the page of one model: what sweeps over the depth and over power modes show."""

from edgemeter.collector.web.model import model_view
from edgemeter.collector.web.queries import CaseFilter
from edgemeter.collector.web.view import ViewRequest
from tests.fixtures.record_factory import make_environment, make_generation, make_latency, make_model, make_record
from tests.fixtures.served_page import view_context


def run_of(tpot_ms, **changes):
    """Return a run of a language model."""
    generation = make_generation(tpot=make_latency(p50_ms=tpot_ms))
    return make_record(model=make_model(name="qwen", task="generation"), generation=generation, **changes)


def page_of(*runs):
    """Return the page of the model."""
    with view_context([*runs, run_of(5.0, device="server", role="reference")]) as context:
        return str(model_view(context, ViewRequest("model"), CaseFilter(model="qwen")).body)


def test_power_modes_of_one_board_are_answered_in_a_sentence():
    """One mode has no answer."""
    runs = [
        run_of(tpot_ms, environment=make_environment(power_mode=mode), id=f"{mode}{number}")
        for mode, tpot_ms in (("0 15W", 20.0), ("1 25W", 10.0))
        for number in range(3)
    ]
    assert "Power modes and clocks" in (text := page_of(*runs))
    assert "pi-1 · qwen 512+11, fp32, onnx, graph_optimisation all: fastest, not clearly apart: 15W (100 tokens/s), 25W" in text
    assert "Power modes and clocks" not in page_of(*runs[:3])
