"""Facts about real int8 models without a card: the sound one ranks, the one that wrong scales ruined is caught by name."""

from pathlib import Path

import flatbuffers
import pytest
from ai_edge_litert import schema_py_generated as schema

from edgemeter.agent.verdict import judge
from tests.fixtures.run_jobs import rapid_run

pytestmark = [pytest.mark.realdata, pytest.mark.slow]
SOUND = "yolov8n_full_integer_quant.tflite"


def ruined(path: Path, factor: float) -> bytes:
    """Return the model with the scales of nine of its convolutions' outputs multiplied: as calibrated on pictures too dark."""
    model = schema.ModelT.InitFromPackedBuf(path.read_bytes(), 0)
    (graph,) = model.subgraphs
    codes = [code.builtinCode for code in model.operatorCodes]
    convolutions = [operator for operator in graph.operators if codes[operator.opcodeIndex] == schema.BuiltinOperator.CONV_2D]
    for convolution in convolutions[3:12]:
        quantisation = graph.tensors[convolution.outputs[0]].quantization
        quantisation.scale = [quantisation.scale[0] * factor]
    builder = flatbuffers.Builder(1 << 20)
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())


def broken_rules(model: Path, realdata: Path) -> tuple[float, list[str]]:
    """Return the AP of a rapid run in this process, and the rules about answers that it breaks."""
    measured = rapid_run(
        model,
        agreement=True,
        data=str(realdata / "images" / "coco_tiny_80"),
        annotations=str(realdata / "annotations" / "coco_tiny_80_instances_val2017.json"),
    )
    accuracy_rules = {"outputs-differ", *(rule.name for rule in judge.accuracy_rules.RULES)}
    named = [reason.partition(":")[0] for reason in judge.judge(measured, ()).reasons]
    assert measured.agreement is not None, measured.agreement_reason
    return measured.accuracy.value, [name for name in named if name in accuracy_rules]


@pytest.mark.long
def test_a_sound_int8_model_violates_no_rule_about_predictions(realdata):
    """Its AP is what independent runners found, and the reference kernels agree with it."""
    value, broken = broken_rules(realdata / "models" / SOUND, realdata)
    assert value == pytest.approx(0.3647, abs=0.005)
    assert broken == []


@pytest.mark.long
def test_a_model_ruined_by_wrong_scales_is_caught_by_name(realdata, tmp_path):
    """It runs as fast as before, and its predictions are worthless: found without a reference value and without a card."""
    model = tmp_path / SOUND
    model.write_bytes(ruined(realdata / "models" / SOUND, 0.2))
    value, broken = broken_rules(model, realdata)
    assert value < 0.05
    assert "low-ap" in broken
