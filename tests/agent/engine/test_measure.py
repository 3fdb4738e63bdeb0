"""Facts about `edgemeter.agent.engine.measure`: a batch that is fixed above 1 is timed whole and scored; when a run idles."""

import numpy as np
import pytest

from edgemeter.agent.engine.measure import may_give_energy, measure
from edgemeter.agent.engine.scenarios.scenario import SCENARIOS
from edgemeter.agent.engine.scenarios.timing import TimingPlan
from tests.fixtures.run_jobs import one_case, rapid_run, run_job, write_photographs

SIDE, CLASSES, ANCHORS, BATCH, PHOTOGRAPHS = 16, 2, 128, 4, 6


@pytest.fixture
def model(tmp_path):
    """Return an ONNX file that shapes its four pictures into the outputs of a YOLOv8."""
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    value, kind = onnx.helper.make_tensor_value_info, onnx.TensorProto.FLOAT
    sizes = onnx.numpy_helper.from_array(np.array([BATCH, 4 + CLASSES, ANCHORS]), "sizes")
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Reshape", ["x", "sizes"], ["y"])],
        "passes its pictures through",
        [value("x", kind, [BATCH, 3, SIDE, SIDE])],
        [value("y", kind, [BATCH, 4 + CLASSES, ANCHORS])],
        [sizes],
    )
    path = tmp_path / "four.onnx"
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=9), str(path))
    card = f"""
    name = "passed-through"
    task = "detection"
    family = "yolov8"
    precision = "fp32"
    input = {{height = {SIDE}, width = {SIDE}, layout = "NCHW"}}
    output = {{classes = {CLASSES}, nms_iou = 0.7}}
    """
    (tmp_path / "four.onnx.toml").write_text(card)
    return path


@pytest.fixture
def photographs(tmp_path):
    """Return a folder of pictures that are a detector's answer themselves: in each one box, and annotations that it fits."""
    pictures = []
    for number in range(1, PHOTOGRAPHS + 1):
        answer = np.zeros((4 + CLASSES, ANCHORS), np.uint8)
        answer[:4, 7] = (100 + 5 * number, 120, 80, 60)
        answer[4 + number % CLASSES, 7] = 200
        pixels = answer.reshape(3, SIDE, SIDE).transpose(1, 2, 0)
        pictures.append((pixels, [((answer[:4, 7] / 255 * SIDE).tolist(), number % CLASSES + 1)]))
    return write_photographs(tmp_path, pictures)


@pytest.mark.parametrize(("scenario", "batch"), [("single_stream", BATCH), ("offline", BATCH)])
def test_a_fixed_batch_is_timed_whole_and_scored(model, photographs, scenario, batch):
    """Every photograph is found as with a batch of 1; the record says how many samples a call takes."""
    measured = rapid_run(model, idle_seconds=0.0, scenario=scenario, **photographs)
    assert measured.accuracy.value == pytest.approx(1)
    assert (measured.batch, measured.inputs[0].shape, measured.answers.found) == (batch, (BATCH, 3, SIDE, SIDE), PHOTOGRAPHS)


BATCHES = """
import time
from edgemeter.agent.runtimes.python_model import PythonModel
def f(x):
    time.sleep(0 if len(x) == 1 else 0.05)
    return x
def make(): return PythonModel(call=f, inputs={"x": ("float32", (None, 4))}, backend="BACKEND")
"""


@pytest.mark.parametrize(("backend", "compiles"), [("jit,cpu", True), ("callable", False)])
def test_the_first_query_is_one_of_the_runs_batch(tmp_path, backend, compiles):
    """Loading called the model with a batch of 1, which is not of this run; compiling is stated of what compiles."""
    (tmp_path / "net.py").write_text(BATCHES.replace("BACKEND", backend))
    case = one_case(tmp_path / "net.py:make", mode="rapid", scenario="offline", batch=BATCH)
    cold = measure(run_job(case), 0, lambda _: None).cold_start
    assert cold.first_ms >= 50
    assert (cold.compile_ms is not None) == compiles


def test_a_run_idles_where_its_timed_part_may_give_an_energy():
    """10 s and 100 inferences are the least that an energy is given for."""
    for queries, seconds, expected_ms, batch, idles in [
        # rapid: 64 queries are too few, however long one takes.
        (64, 0.0, 0.2, 1, False),
        (64, 0.0, 1000.0, 1, False),
        # A batch is several inferences.
        (64, 0.0, 1000.0, 8, True),
        (128, 10.0, 0.2, 1, True),
        (128, 5.0, 0.2, 1, False),
        # The warm-up may be wrong by a quarter.
        (128, 8.0, 0.2, 1, True),
        (128, 0.0, 60.0, 1, True),
    ]:
        work = run_job(one_case("a.onnx"), idle=True, energy_from_s=10.0, energy_from_inferences=100)
        plan = TimingPlan(queries=queries, seconds=seconds, expected_ns=int(expected_ms * 1e6), seed=0, batch=batch)
        assert may_give_energy(work, plan, SCENARIOS["single_stream"].seconds(plan)) == idles, (
            f"{queries!r}, {seconds!r}, {expected_ms!r}, {batch!r}"
        )
