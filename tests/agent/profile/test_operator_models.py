"""One-operator models compute what the layer computes in its model; FLOPs, bytes and the roofline by hand; what cannot be cut is named."""

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import numpy as np
import pytest
from rich.console import Console

from edgemeter.agent.base.errors import ConfigError, UnavailableError
from edgemeter.agent.profile import onnx_operators, operator_cutting, operator_models, operator_report
from edgemeter.agent.profile.operator_models import OperatorModel, operator_flops
from edgemeter.agent.profile.profiler import ProfileEvent, RecordedProfile, inference
from tests.fixtures.record_factory import make_energy, make_record

onnx = pytest.importorskip("onnx", reason="needs the extra `operators`")
onnxruntime = pytest.importorskip("onnxruntime", reason="needs the extra `onnx`")
helper, numpy_helper = onnx.helper, onnx.numpy_helper
FIXTURES = Path(__file__).resolve().parents[2] / "fixtures" / "runtimes"
DRAW = np.random.default_rng(7)
W = DRAW.standard_normal((4, 4, 3, 3)).astype(np.float32)
V = DRAW.standard_normal((4, 4, 3, 3)).astype(np.float32)


def save(path, nodes, inputs, outputs, weights, opset=17):
    """Write an ONNX file, and return its path."""
    ends = [[helper.make_tensor_value_info(name, kind, shape) for name, kind, shape in values] for values in (inputs, outputs)]
    graph = helper.make_graph(nodes, "g", *ends, [numpy_helper.from_array(value, name) for name, value in weights.items()])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8), str(path))
    return path


@pytest.fixture
def two_convolutions(tmp_path):
    """Return a model with an open batch: two convolutions alike but for their weights, with a Relu between, then a Shape and a Gather."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], name="first", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["a"], ["b"], name="act"),
        helper.make_node("Conv", ["b", "v"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Shape", ["c"], ["s"], name="size"),
    ]
    ends = [("c", 1, ["batch", 4, 8, 8]), ("s", 7, [4])]
    return save(tmp_path / "whole.onnx", nodes, [("x", 1, ["batch", 4, 8, 8])], ends, {"w": W, "v": V})


def event(name, kind, duration_us, start_us):
    """Return an operator's event."""
    return ProfileEvent(name=name, type=kind, start_us=start_us, duration_us=duration_us)


def test_without_onnx_the_command_that_installs_it_is_named(two_convolutions, tmp_path, monkeypatch):
    """Also where protobuf, which it brings, is absent too."""
    for name in ("onnx", "google.protobuf.message"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(UnavailableError, match=r"pip install 'edgemeter\[operators\]'"):
        onnx_operators.OnnxCutter(two_convolutions, tmp_path / "named.onnx")


def test_a_model_is_cut_in_the_sandbox_alone(two_convolutions, tmp_path, monkeypatch):
    """The process that asks cannot read it, and gets the operators."""
    monkeypatch.setattr(onnx, "load", None)
    events = [event("first", "Conv", 60, 0), event("Conv_2", "Conv", 20, 60)]
    about = {"model": "m", "runtime": "onnx", "package": "p", "version": "1", "backend": "cpu", "threads": 1, "data": "noise"}
    recorded = RecordedProfile(**about, plain_ns=[1], profiled_ns=[100_000], events=events)
    (tmp_path / "out").mkdir()
    (slowest,), left_out = operator_cutting.cut_in_sandbox(two_convolutions, lambda _named: recorded, 5, tmp_path / "out")
    assert (slowest.file, slowest.count, slowest.profiled_ratio) == (tmp_path / "out" / slowest.file.name, 2, pytest.approx(0.8))
    assert slowest.file.read_bytes()
    assert left_out == []
    broken = tmp_path / "broken.onnx"
    broken.write_bytes(b"no model")
    with pytest.raises(ConfigError, match="cannot cut operators out of"):
        operator_cutting.cut_in_sandbox(broken, lambda _named: recorded, 5, tmp_path / "out")


def test_a_layer_alone_computes_what_it_computes_in_its_model(two_convolutions, tmp_path):
    """The outputs are bit for bit those of the whole model at that place; layers alike are one model with a count."""
    prepared = onnx_operators.open_model(two_convolutions, tmp_path / "named.onnx")
    assert [node.name for node in onnx.load(str(tmp_path / "named.onnx")).graph.node] == ["first", "act", "Conv_2", "size"]
    # ONNX Runtime fuses the Relu into the first convolution, and names it by the Relu's output.
    events = [
        event("b_nchwc", "Conv", 60, 0),
        event("Conv_2", "Conv", 20, 60),
        event("size", "Shape", 10, 80),
        event("re", "Reorder", 5, 90),
    ]
    (tmp_path / "cut").mkdir()
    cut, left_out = operator_cutting.cut_slowest(prepared, events, 100.0, 5, tmp_path / "cut")
    slowest = cut[0]
    assert slowest.name == "Conv 1x4x8x8 by 4x4x3x3"
    assert slowest.kind == "Conv"
    assert slowest.count == 2
    assert slowest.profiled_ratio == pytest.approx(0.8)
    assert slowest.flops == 2 * (4 * 8 * 8) * (4 * 3 * 3)
    assert slowest.bytes == 4 * (4 * 8 * 8 + 4 * 4 * 3 * 3 + 4 * 8 * 8)
    assert left_out == ["what the runtime fused or added itself (Reorder): 5.0% of the time"]
    x = DRAW.standard_normal((1, 4, 8, 8)).astype(np.float32)
    alone = onnxruntime.InferenceSession(str(slowest.file))
    assert alone.get_modelmeta().custom_metadata_map == {"edgemeter_operator": slowest.name}
    model = onnx.load(str(two_convolutions))
    model.graph.output.append(helper.make_tensor_value_info("a", 1, ["batch", 4, 8, 8]))
    inside = onnxruntime.InferenceSession(model.SerializeToString()).run(["a"], {"x": x})[0]
    np.testing.assert_allclose(alone.run(None, {"x": x})[0], inside, rtol=1e-6, atol=1e-6)


def test_one_disturbed_inference_does_not_choose_what_is_cut(two_convolutions, tmp_path):
    """The Relu took longest in sum, by one inference of three: 990 us, in the others 10 beside convolutions of 60."""
    model = onnx_operators.open_model(two_convolutions, tmp_path / "named.onnx")
    events = []
    for start_us, relu_us in ((0, 10), (1000, 990), (3000, 10)):
        events += [inference(start_us, 100), event("first", "Conv", 60, start_us), event("act", "Relu", relu_us, start_us + 60)]
    (slowest,), _ = operator_cutting.cut_slowest(model, events, 100.0, 1, tmp_path)
    assert (slowest.kind, slowest.profiled_ratio) == ("Conv", pytest.approx(0.6))


def test_the_same_layer_is_the_same_file_on_every_device(two_convolutions, tmp_path):
    """Devices are compared by case, which holds the file's hash."""
    contents = []
    for folder in (tmp_path / "one", tmp_path / "two"):
        folder.mkdir()
        model = onnx_operators.open_model(two_convolutions, folder / "named.onnx")
        (cut, *_), _ = operator_cutting.cut_slowest(model, [event("first", "Conv", 1, 0)], 1.0, 1, folder)
        contents.append(
            [
                cut.file.read_bytes(),
                *(shape.file.read_bytes() for shape in operator_cutting.write_shapes([operator_models.PEAK], ".onnx", folder)),
            ]
        )
    assert contents[0] == contents[1]


def test_flops_are_those_of_the_definition():
    """By hand; what has no formula is unknown, not 0."""
    for kind, inputs, output, attributes, flops in [
        ("Conv", [(1, 3, 224, 224), (64, 3, 7, 7)], (1, 64, 112, 112), {}, 236_027_904),
        ("Conv", [(1, 96, 8, 8), (96, 1, 3, 3)], (1, 96, 8, 8), {"group": 96}, 2 * 96 * 64 * 9),
        ("ConvTranspose", [(1, 8, 4, 4), (8, 2, 2, 2)], (1, 2, 8, 8), {}, 2 * 8 * 16 * 2 * 4),
        ("Gemm", [(2, 5), (5, 7)], (2, 7), {}, 2 * 2 * 5 * 7),
        ("Gemm", [(5, 2), (5, 7)], (2, 7), {"transA": 1}, 2 * 2 * 5 * 7),
        ("MatMul", [(3, 2, 5), (5, 7)], (3, 2, 7), {}, 3 * 2 * 2 * 5 * 7),
        ("Attention", [(1, 12, 128, 64), (1, 12, 128, 64)], (1, 12, 128, 64), {}, 2 * 2 * 12 * 128 * 128 * 64),
        ("Softmax", [(1, 10)], (1, 10), {}, None),
    ]:
        assert operator_flops(kind, inputs, output, attributes) == flops, f"{kind!r}, {inputs!r}"


@pytest.mark.slow
def test_the_operators_of_the_list_compute_what_they_are_called(tmp_path):
    """Shapes as stated; the product of matrices and attention against numpy."""
    for shape in operator_cutting.write_shapes(operator_models.STANDARD, ".onnx", tmp_path):
        session = onnxruntime.InferenceSession(str(shape.file))
        inputs = {entry.name: DRAW.standard_normal(entry.shape).astype(np.float32) for entry in session.get_inputs()}
        (result,) = session.run(None, inputs)
        if shape.kind == "Gemm":
            (weights,) = (numpy_helper.to_array(tensor) for tensor in onnx.load(str(shape.file)).graph.initializer)
            np.testing.assert_allclose(result, inputs["x"] @ weights, rtol=1e-2, atol=1e-2)
        if shape.kind == "Attention":
            scores = inputs["x"] @ inputs["key"].swapaxes(-1, -2) / np.sqrt(inputs["x"].shape[-1])
            weights = np.exp(scores - scores.max(-1, keepdims=True))
            np.testing.assert_allclose(result, weights / weights.sum(-1, keepdims=True) @ inputs["value"], rtol=1e-3, atol=1e-4)
    assert len({shape.name for shape in operator_models.STANDARD}) == len(operator_models.STANDARD)


def test_what_cannot_be_cut_is_refused(tmp_path):
    """A broken file, and int8 layers, which alone would be float."""
    (tmp_path / "broken.onnx").write_bytes(b"\x08\x07broken")
    with pytest.raises(ConfigError, match="give a whole ONNX file"):
        onnx_operators.open_model(tmp_path / "broken.onnx", tmp_path / "named.onnx")
    nodes = [helper.make_node("QuantizeLinear", ["x", "s"], ["y"])]
    path = save(tmp_path / "q.onnx", nodes, [("x", 1, [1, 4])], [("y", 2, [1, 4])], {"s": np.float32(0.1).reshape(())})
    with pytest.raises(ConfigError, match="give the fp32 or fp16 model"):
        onnx_operators.open_model(path, tmp_path / "named.onnx")


def test_a_layer_of_unknown_shape_is_left_out_with_its_share(tmp_path):
    """Its size follows from the data."""
    nodes = [helper.make_node("NonZero", ["x"], ["where"], name="find"), helper.make_node("Cast", ["where"], ["y"], name="cast", to=1)]
    path = save(tmp_path / "n.onnx", nodes, [("x", 1, [1, 4])], [("y", 1, None)], {})
    model = onnx_operators.open_model(path, tmp_path / "named.onnx")
    cut, left_out = operator_cutting.cut_slowest(model, [event("find", "NonZero", 30, 0)], 100.0, 5, tmp_path)
    assert cut == []
    assert left_out == ["NonZero 'find' (30.0% of the time): the shape of 'where' is not known before the model runs"]


def record_of(file, p50_ms, task="operator"):
    """Return a record of this file with this median."""
    record = make_record()
    latency = msgspec.structs.replace(record.latency, min_ms=p50_ms, p50_ms=p50_ms, p50_low_ms=p50_ms * 0.9, p50_high_ms=p50_ms * 1.1)
    return msgspec.structs.replace(record, latency=latency, model=msgspec.structs.replace(record.model, file=file, name=file, task=task))


def operator(name, kind, flops, moved, count=1, ratio=None):
    """Return an operator of that name."""
    return OperatorModel(name, kind, Path(f"{name}.onnx"), count, flops, moved, ratio)


def test_the_place_under_the_roofline_is_by_the_peak_and_bandwidth_of_the_same_run():
    """Peak 2 GFLOP in 10 ms = 200 GFLOP/s, copies 10 GB/s: 20 FLOP a byte divide what memory binds from what computing binds."""
    models = [
        operator("peak", "Gemm", 2_000_000_000, 10_000_000),
        operator("dense", "Conv", 100_000_000, 1_000_000, count=2, ratio=0.5),
        operator("thin", "Conv", 1_000_000, 1_000_000, ratio=0.1),
        operator("plain", "Relu", None, 1_000_000, ratio=0.1),
    ]
    records = [record_of("peak.onnx", 10.0), record_of("dense.onnx", 1.0), record_of("thin.onnx", 0.5), record_of("plain.onnx", 0.2)]
    profile = operator_report.measured_operators(models, [*records, record_of("whole.onnx", 4.0, "unknown")], (10.0, 9.0), ["x"])
    dense, thin, plain = profile.operators
    assert (profile.peaks_gflop_per_s, profile.copy_gbyte_per_s, profile.whole_p50_ms) == ({"fp32": pytest.approx(200)}, 10.0, 4.0)
    # 100 MFLOP at 200 GFLOP/s are 0.5 ms; 1 MB at 10 GB/s is 0.1 ms.
    assert (dense.bound, dense.roof_ratio, dense.intensity_flop_per_byte) == ("compute", pytest.approx(0.5), 100)
    assert (thin.bound, thin.roof_ratio, thin.gflop_per_s) == ("memory", pytest.approx(0.2), pytest.approx(2))
    assert plain.bound is None
    assert plain.roof_ratio is None
    assert plain.gflop_per_s is None
    assert plain.gbyte_per_s == pytest.approx(5)
    assert (dense.share_ratio, thin.share_ratio) == (pytest.approx(0.5), pytest.approx(0.125))
    assert (profile.sum_ms, profile.sum_ratio, profile.profiled_sum_ratio) == (pytest.approx(2.7), pytest.approx(0.675), pytest.approx(0.7))
    notes = " ".join(operator_report.operator_notes(profile))
    assert "200 GFLOP/s" in notes
    assert profile.doubts == ()
    verdict = msgspec.structs.replace(records[0].verdict, state="suspect")
    busy = msgspec.structs.replace(records[0], verdict=verdict)
    (doubt,) = operator_report.measured_operators(models, [busy, *records[1:]], (10.0, 9.0)).doubts
    assert doubt.startswith("the run that gave the peak (peak.onnx) is suspect")
    assert "2.7 ms, 67.5% of the whole model's 4 ms; inside it the profiler gives them 70.0%" in notes


def roof_of(copies=(10.0, 9.0), peaks_ms=(10.0, 9.5)):
    """Return the profile of one convolution, 0.1 ms by copying and 0.05 by the peak, of which 0.009 ms are seen; and what is printed."""
    peak = operator_models.PEAK.name
    models = [operator(peak, "Gemm", 2_000_000_000, 10_000_000), operator("cached", "Conv", 10_000_000, 1_000_000)]
    runs = [record_of(f"{peak}.onnx", peaks_ms[0]), record_of("cached.onnx", 0.009), record_of(f"{peak}.onnx", peaks_ms[1])]
    profile = operator_report.measured_operators(models, runs, copies)
    console = Console(record=True, width=250, file=io.StringIO())
    operator_report.show_operators(profile, console)
    return profile, console.export_text()


def test_a_share_above_the_roof_is_refused_with_its_reason():
    """1,111% of the roof is no share of it."""
    profile, text = roof_of()
    row = profile.operators[1]
    assert (row.bound, row.roof_ratio) == ("memory", None)
    assert "caches" in row.roof_reason
    assert "no share of the roof for cached: its data stay in caches" in text
    assert "1111.1%" not in text
    assert (profile.peaks_gflop_per_s, profile.copy_gbyte_per_s) == ({"fp32": pytest.approx(2000 / 9.5)}, 10.0)


@pytest.mark.parametrize(
    ("disturbed", "reason"),
    [
        ({"copies": (0.9, 10.0)}, "0.9 and 10 GB/s of copying memory: other work disturbed it"),
        ({"copies": (10.0, 4.0)}, "10 and 4 GB/s of copying memory: other work disturbed it"),
        ({"peaks_ms": (10.0, 20.0)}, "200 and 100 GFLOP/s of Gemm 512x512 by 512x512: other work disturbed it"),
    ],
)
def test_a_disturbed_roof_is_none(disturbed, reason):
    """Measured twice in the run: where the two differ there is no roof, and no operator has a share of it."""
    profile, text = roof_of(**disturbed)
    assert not profile.peaks_gflop_per_s or profile.copy_gbyte_per_s is None
    assert {(row.bound, row.roof_ratio) for row in profile.operators} == {(None, None)}
    assert reason in text


def test_an_energy_of_an_operator_has_its_uncertainty_and_an_estimate_is_marked():
    """In the table as in the document; an uncertainty that is not known is `?`."""
    models = [operator(name, "Gemm", 100, 100) for name in ("a", "b", "c")]
    measured, unsure, estimated = (
        msgspec.structs.replace(record_of(f"{name}.onnx", 1.0), energy=make_energy(gross_mj=62.5, **changes))
        for name, changes in (("a", {"gross_u_mj": 2.5}), ("b", {"gross_u_mj": None}), ("c", {"sensor": "estimate"}))
    )
    profile = operator_report.measured_operators(models, [measured, unsure, estimated], (10.0, 9.0))
    assert [(row.energy_u_mj, row.energy_provenance) for row in profile.operators][:2] == [(2.5, "measured"), (None, "measured")]
    assert profile.operators[2].energy_provenance == "estimated"
    console = Console(record=True, width=200, file=io.StringIO())
    operator_report.show_operators(profile, console)
    text = console.export_text()
    assert all(figure in text for figure in ("62.5 ±2.5", "62.5 ±?", "62.5 (estimated)"))


def test_a_sum_with_an_unknown_part_is_unknown():
    """A median that too few queries support is none."""
    models = [operator("a", "Conv", 10, 10, ratio=0.5), operator("b", "Conv", 10, 10, ratio=0.5)]
    record = record_of("b.onnx", 1.0)
    refused = msgspec.structs.replace(record, latency=msgspec.structs.replace(record.latency, p50_ms=None))
    records = [record_of("a.onnx", 1.0), refused, record_of("w.onnx", 4.0, "unknown")]
    profile = operator_report.measured_operators(models, records, (10.0, 9.0))
    assert (profile.sum_ms, profile.sum_ratio, profile.peaks_gflop_per_s) == (None, None, {})
    assert profile.operators[1].gflop_per_s is None


@pytest.mark.slow
def test_operators_are_measured_and_kept_as_runs_of_their_own_task(two_convolutions, tmp_path):
    """By the command: verdicts, the ledger, and a suite that `edgemeter run` delivers."""
    environment = {**os.environ, "EDGEMETER_HOME": str(tmp_path / "home"), "COLUMNS": "200"}
    command = [
        "models",
        "profile",
        "--model",
        two_convolutions,
        "--operators",
        "--top",
        "1",
        "--queries",
        "5",
        "--output",
        tmp_path / "out",
    ]
    completed = subprocess.run(
        [sys.executable, "-m", "edgemeter.agent.cli.main", *map(str, command), "--power", "none", "--json"],
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
        env=environment,
    )
    assert completed.returncode == 0, completed.stderr
    document = json.loads(completed.stdout)
    (row,) = document["operators"]
    assert (row["operator"], row["count"]) == ("Conv 1x4x8x8 by 4x4x3x3", 2)
    assert row["share_ratio"] == pytest.approx(2 * row["p50_ms"] / document["whole_p50_ms"])
    assert row["verdict"] in {"valid", "suspect", "invalid"}
    # On a busy machine the two runs of the peak may differ.
    assert document["peaks_gflop_per_s"] or "GFLOP/s of Gemm" in str(document["doubts"])
    assert (tmp_path / "out" / "operators.toml").is_file()
