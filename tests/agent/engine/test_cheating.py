"""Facts about whole runs: a runtime that does not do the work, or a model that was ruined, is caught by name."""

from pathlib import Path

import flatbuffers
import msgspec
import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema

from edgemeter.agent import runtimes
from edgemeter.agent.verdict import judge as verdict
from tests.fixtures.run_jobs import rapid_run, write_photographs

SIDE, CLASSES, ANCHORS, PHOTOGRAPHS, OBJECTS = 16, 2, 128, 15, 4
CARD = f"""
name = "passed-through"
task = "detection"
family = "yolov8"
precision = "int8"
[input]
height = {SIDE}
width = {SIDE}
layout = "NHWC"
[output]
classes = {CLASSES}
labels = ["cat", "dog"]
nms_iou = 0.7
"""


def run(model: Path, **settings):
    """Return what a rapid run in this process measures, and the names of the rules that it breaks."""
    measured = rapid_run(model, idle_seconds=0.0, **settings)
    # Another process on this machine may make a run of microseconds unsteady; here only the answers are judged.
    broken = [reason for reason in verdict.judge(measured, ()).reasons if reason.partition(":")[0] in ANSWER_RULES]
    return measured, broken


ANSWER_RULES = {"outputs-differ", *(rule.name for rule in verdict.accuracy_rules.RULES)}


@pytest.mark.parametrize(
    ("cheat", "rules"),
    [
        ("Honest", []),
        ("PreviousInput", ["outputs-differ"]),
        ("Overflowing", ["not-finite"]),
        ("Growing", ["outputs-differ"]),
    ],
)
def test_a_runtime_that_cheats_is_caught_and_an_honest_one_is_not(tmp_path, monkeypatch, cheat, rules):
    """Caching, answering from the input before, answering before it is done, overflowing, and outputs of another shape each time."""
    monkeypatch.setitem(runtimes.RUNTIMES, "cheat", f"tests.fixtures.cheats:{cheat}")
    measured, broken = run(tmp_path / "model.cheat", runtime="cheat")
    assert [reason.partition(":")[0] for reason in broken] == rules
    assert measured.output_check.compared >= 2


def test_a_runtime_that_repeats_its_first_output_is_noted_on_noise_and_invalid_on_photographs(tmp_path, monkeypatch):
    """Noise may give equal outputs, photographs may not."""
    monkeypatch.setitem(runtimes.RUNTIMES, "cheat", "tests.fixtures.cheats:FirstAnswer")
    on_noise, broken = run(tmp_path / "model.cheat", runtime="cheat")
    assert broken == []
    assert [note.partition(":")[0] for note in verdict.judge(on_noise, ()).notes if note.startswith("constant")] == ["constant-on-noise"]
    # What the same outputs for photographs come to.
    on_photographs = msgspec.structs.replace(on_noise, dataset=msgspec.structs.replace(on_noise.dataset, images=8))
    assert [reason.partition(":")[0] for reason in verdict.judge(on_photographs, ()).reasons if reason.startswith("constant")] == [
        "constant-output"
    ]


def int8_model(scale: float) -> bytes:
    """Return a model that shapes its int8 picture into a YOLOv8's answer, and quantises that anew by this scale."""

    def tensor(name, shape, step):
        quantisation = schema.QuantizationParametersT(scale=[step], zeroPoint=[-128])
        return schema.TensorT(name=name, shape=shape, type=schema.TensorType.INT8, quantization=quantisation)

    answer = [1, 4 + CLASSES, ANCHORS]
    sizes = schema.TensorT(name="sizes", shape=[3], type=schema.TensorType.INT32, buffer=1)
    tensors = [tensor("images", [1, SIDE, SIDE, 3], 1 / 255), sizes]
    tensors += [tensor("shaped", answer, 1 / 255), tensor("output0", answer, scale)]
    reshape = schema.OperatorT(opcodeIndex=0, inputs=[0, 1], outputs=[2])
    quantise = schema.OperatorT(opcodeIndex=1, inputs=[2], outputs=[3])
    graph = schema.SubGraphT(tensors=tensors, inputs=[0], outputs=[3], operators=[reshape, quantise], name="main")
    codes = [schema.OperatorCodeT(deprecatedBuiltinCode=code, builtinCode=code, version=1) for code in (22, 114)]
    buffers = [schema.BufferT(), schema.BufferT(data=list(np.array(answer, "<i4").tobytes()))]
    model = schema.ModelT(version=3, operatorCodes=codes, subgraphs=[graph], buffers=buffers, description="passes its answer through")
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())


@pytest.fixture
def photographs(tmp_path):
    """Return a folder of pictures whose pixels are a detector's answer, and annotations that this answer fits."""
    draw = np.random.default_rng(4)
    pictures = []
    for _ in range(PHOTOGRAPHS):
        answer = np.zeros((4 + CLASSES, ANCHORS), np.uint8)
        answer[0:2, :OBJECTS] = draw.integers(60, 195, (2, OBJECTS))
        answer[2:4, :OBJECTS] = draw.integers(40, 100, (2, OBJECTS))
        kinds = draw.integers(0, CLASSES, OBJECTS)
        answer[4 + kinds, range(OBJECTS)] = draw.integers(26, 50, OBJECTS)
        boxes = (answer[:4, :OBJECTS] / 255 * SIDE).T.tolist()
        pictures.append((answer.reshape(SIDE, SIDE, 3), zip(boxes, (kinds + 1).tolist(), strict=True)))
    return write_photographs(tmp_path, pictures)


@pytest.mark.parametrize(
    ("scale", "rules", "evidence"),
    [
        (1 / 255, [], ""),
        # One scale for boxes and for much smaller scores: it is the boxes', and all scores round to 0.
        (0.6, ["no-detections", "low-ap"], "output 'output0' has one scale for all values, a step is 0.6"),
        # Calibrated on something else: what is above a fifth is cut off, and all boxes are in one corner.
        (0.2 / 255, ["low-ap"], "coco_ap 0.000 on 60 annotated objects in 15 photographs"),
    ],
)
def test_a_model_that_its_quantisation_ruined_is_caught_without_a_reference(tmp_path, photographs, scale, rules, evidence):
    """The sound int8 model is valid; the one whose scores are all zero is invalid, the one with a ruined AP suspect, by name."""
    model = tmp_path / "int8.tflite"
    model.write_bytes(int8_model(scale))
    (tmp_path / "int8.tflite.toml").write_text(CARD)
    measured, broken = run(model, **photographs)
    assert [reason.partition(":")[0] for reason in broken] == rules
    assert evidence in " ".join(broken)
    assert (measured.accuracy.value > 0.9) == (not rules)
    assert measured.answers.objects == PHOTOGRAPHS * OBJECTS
