"""Tests of the shipped detector in every format, by the real converters and runtimes.

Others are of conversions that ruin it.
"""

import platform
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.progress import no_progress
from edgemeter.agent.contract import model_card, model_file
from edgemeter.agent.datasets.dataset import open_folder
from edgemeter.models.convert import conversion, conversion_report, formats, parity, source
from edgemeter.models.convert.parity import image_inputs
from edgemeter.models.convert.photo_split import split

pytestmark = [pytest.mark.convert, pytest.mark.nightly]

HERE = [name for name, entry in formats.FORMATS.items() if entry.program is None]
# Without VNNI, ONNX Runtime's integer kernels add products of 8 bits in 16 and saturate: 7 dB worse
# than the same graph in float. The file is for TensorRT, which does not.
SATURATES = (
    {"onnx-int8-symmetric"}
    if platform.machine() == "x86_64" and "vnni" not in Path("/proc/cpuinfo").read_text()
    else set()
)


def request(out, goals, calibration=None, name="edgemeter-shapes", pictures=None):
    """Return a request for the shipped detector, on the scenes that ship."""
    model = source.load_source(source.find_source(name))
    photos = split(calibration, pictures or source.shipped_scenes())
    return conversion_report.ConversionRequest(
        model, conversion.routes_to(goals, model), out, photos
    )


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """Return the shipped detector in all formats that need no other program, by name."""
    out = tmp_path_factory.mktemp("converted")
    conversions, errors = conversion.convert(
        request(out, HERE, source.shipped_scenes()), no_progress
    )
    assert errors == []
    return {entry.format.name: entry for entry in conversions}


def test_every_format_is_written_and_keeps_the_accuracy(written):
    """Every format is written, and its AP stays within 0.002 (fp32), 0.005 (fp16), 0.03 (int8).

    The runtimes measure it on the scenes that ship.
    """
    assert sorted(written) == sorted(HERE)
    for name in sorted(set(written) - SATURATES):
        written_file = written[name]
        lost = written_file.parity.before.value - written_file.parity.after.value
        assert abs(lost) <= {"fp32": 0.002, "fp16": 0.005}.get(
            written_file.format.precision, 0.03
        ), name
        assert written_file.parity.verdict.state == "ok", (name, written_file.parity.verdict)


def test_fp32_forms_agree_to_rounding_and_smaller_precisions_make_smaller_files(written):
    """Forms in fp32 agree above 80 dB, and smaller precisions make smaller files.

    A single wrong weight gives less than 80 dB. An int8 file has about a quarter of the fp32 size,
    fp16 about half. An Edge TPU takes integers only.
    """
    for runtime in ("onnx", "litert"):
        fp32_bytes = written[f"{runtime}-fp32"].size_bytes
        assert written[f"{runtime}-fp16"].size_bytes < 0.6 * fp32_bytes
        assert written[f"{runtime}-int8"].size_bytes < 0.4 * fp32_bytes
    model = source.load_source(written["litert-int8"].path)
    assert {info.dtype for info in (*model.loaded.inputs, *model.loaded.outputs)} == {"int8"}
    assert (model.form, written["litert-int8"].facts["float_nodes"]) == ("litert-int8", 0)
    assert all(
        written[name].parity.agreement.snr_db > 80
        for name in HERE
        if written[name].format.base == formats.TORCH and written[name].format.precision == "fp32"
    )


def test_the_card_states_how_it_was_made_and_what_it_cost(written):
    """The card states source and calibration by hash, tools by version, and parity in figures.

    It describes the file beside it.
    """
    written_file = written["litert-int8"]
    about = model_card.read_card(model_card.card_path(written_file.path))
    assert about.sha256 == model_file.sha256(written_file.path)
    assert about.made["from_sha256"] == model_file.sha256(source.find_source("edgemeter-shapes"))
    assert {"torch", "litert-torch", "ai-edge-quantizer"} <= {
        tool.split()[0] for tool in about.made["with"].split(", ")
    }
    assert (about.made["calibration_images"], len(about.made["calibration_sha256"])) == (56, 64)
    assert (about.input.layout, about.precision) == ("NHWC", "int8")
    # Half of the scenes that ship served the calibration, the others are compared on.
    compared = split(source.shipped_scenes(), source.shipped_scenes()).compared
    accuracy, runtime = parity.score(
        written_file.path, "litert", image_inputs(about, compared), no_progress
    )
    assert (about.accuracy["value"], about.accuracy["images"]) == (
        pytest.approx(accuracy.value, abs=1e-4),
        56,
    )
    assert (about.accuracy["dataset_sha256"], about.accuracy["runtime"]) == (
        compared.sha256,
        runtime,
    )
    assert (about.made["verdict"], about.made["before"]) == (
        "ok",
        pytest.approx(written_file.parity.before.value, abs=1e-4),
    )
    assert (about.made["compared_images"], about.made["after"]) == (56, about.accuracy["value"])


@pytest.mark.parametrize("goal", ["onnx-int8", "litert-int8"])
def test_a_ruined_calibration_is_reported_as_ruined(tmp_path, goal):
    """A calibration on black pictures ruins the model, and is reported as that.

    No file is left, neither that of an earlier conversion nor one that was made on the way.
    """
    (tmp_path / "black").mkdir()
    for number in range(3):
        Image.new("RGB", (160, 160)).save(tmp_path / "black" / f"{number}.png")
    out = tmp_path / "out"
    out.mkdir()
    older = out / f"edgemeter-shapes{formats.FORMATS[goal].ending}"
    for stale in (older, model_card.card_path(older)):
        stale.write_bytes(b"an older one")
    conversion_request = request(out, [goal], open_folder(tmp_path / "black"))
    ((converted,), _) = conversion.convert(conversion_request, no_progress)
    assert (
        converted.parity.verdict.state,
        conversion_report.report_row(converted, conversion_request)["file"],
    ) == ("ruined", None)
    assert list(out.iterdir()) == []


def test_a_conversion_that_is_killed_leaves_nothing_that_is_taken_for_a_model(tmp_path):
    """A conversion that is killed at any moment leaves nothing that is taken for a model.

    A file in the folder has no name that a runtime reads, or it is whole and has its own card.
    """
    out, code = (
        tmp_path / "out",
        (
            "import os, sys\nfrom edgemeter.agent.base import durable_file\nfrom click.testing "
            "import CliRunner\n"
            "from edgemeter.models.cli.convert import convert\nsync, calls = os.fsync, []\n"
            "def dying(descriptor):\n    calls.append(descriptor)\n    len(calls) < "
            "int(sys.argv[1]) or os._exit(9)\n    sync(descriptor)\n"
            "os.fsync = dying\n"
            "print(CliRunner().invoke(convert, ['edgemeter-shapes_fp32.onnx', '--to', "
            "'onnx-fp16', '--output', sys.argv[2]]).output)\n"
        ),
    )
    outcomes = []
    for count in (1, 3, 4, 9):
        completed = subprocess.run(
            [sys.executable, "-c", code, str(count), str(out / str(count))],
            capture_output=True,
            check=False,
        )
        models = [
            path
            for path in (out / str(count)).iterdir()
            if path.suffix == ".onnx" and not path.name.startswith(".")
        ]
        for model in models:
            assert model_card.read_card(model_card.card_path(model)).sha256 == model_file.sha256(
                model
            )
        outcomes.append((completed.returncode, len(models)))
    assert outcomes[0] == (9, 0)
    assert outcomes[-1] == (0, 1)


def test_of_one_folder_for_all_a_half_is_measured_on_and_a_half_compared(tmp_path):
    """With one folder of 112 scenes, half calibrates and the other half is compared.

    The card has both numbers, and its accuracy is that on the compared half.
    """
    conversion_request = request(
        tmp_path, ["onnx-int8"], source.shipped_scenes(), "edgemeter-shapes_fp32.onnx"
    )
    ((converted,), _) = conversion.convert(conversion_request, no_progress)
    card = model_card.read_card(model_card.card_path(converted.path))
    assert (
        card.made["calibration_images"],
        card.made["compared_images"],
        card.accuracy["images"],
    ) == (56, 56, 56)


def test_what_is_compared_only_on_what_its_ranges_were_measured_on_is_not_judged(tmp_path):
    """Eight pictures for both purposes give a file, but no verdict that it is good."""
    few = open_folder(source.shipped_scenes().items[0].path.parent, subset=8)
    conversion_request = request(tmp_path, ["onnx-int8"], few, "edgemeter-shapes_fp32.onnx", few)
    ((converted,), _) = conversion.convert(conversion_request, no_progress)
    row = conversion_report.report_row(converted, conversion_request)
    assert (row["verdict"], row["made"]["calibration_images"], converted.path.is_file()) == (
        "inconclusive",
        8,
        True,
    )
    assert "too few photographs" in row["reason"]


def test_a_file_with_a_fixed_batch_is_calibrated_and_scored_in_whole_batches(tmp_path):
    """The shipped detector for four images a call is as accurate as for one, in fp32 and int8."""
    onnx = import_module("onnx")
    shipped = source.find_source("edgemeter-shapes_fp32.onnx")
    model = onnx.load(str(shipped))
    for info in (*model.graph.input, *model.graph.output):
        info.type.tensor_type.shape.dim[0].dim_value = 4
    for tensor in model.graph.initializer:
        if tensor.data_type == onnx.TensorProto.INT64 and list(tensor.dims) == [3]:
            sizes = onnx.numpy_helper.to_array(tensor)
            tensor.CopyFrom(onnx.numpy_helper.from_array(np.array([4, *sizes[1:]]), tensor.name))
    del model.graph.value_info[:]
    path = tmp_path / shipped.name
    onnx.save(model, str(path))
    card = model_card.card_path(shipped).read_text()
    model_card.card_path(path).write_text(
        "".join(line for line in card.splitlines(keepends=True) if not line.startswith("sha256"))
    )
    scenes = source.shipped_scenes()
    few = open_folder(scenes.items[0].path.parent, subset=8)
    fours, ones = (
        conversion.convert(request(tmp_path / name, ["onnx-int8"], few, str(file)), no_progress)[0][
            0
        ].parity
        for name, file in (("four", path), ("one", shipped))
    )
    assert fours.before.value == pytest.approx(ones.before.value, abs=1e-3)
    assert fours.after.value == pytest.approx(ones.after.value, abs=0.02)
    assert fours.verdict.state == "ok"


def test_ways_that_do_not_exist_are_refused_before_anything_is_run(tmp_path):
    """Impossible conversions are refused before anything runs, with what to give instead.

    Where pictures are missing, the other format of the same request is written.
    """
    for goal, name in (
        ("litert-int8", "edgemeter-shapes_fp32.onnx"),
        ("onnx-fp16", "edgemeter-shapes_int8.onnx"),
    ):
        with pytest.raises(ConfigError, match=goal):
            conversion.convert(request(tmp_path / "out", [goal], name=name), no_progress)
    assert not (tmp_path / "out").exists()
    conversion_request = request(
        tmp_path, ["onnx-int8", "onnx-fp16"], name="edgemeter-shapes_fp32.onnx"
    )
    conversions, errors = conversion.convert(conversion_request, no_progress)
    assert [written_file.format.name for written_file in conversions] == ["onnx-fp16"]
    assert "--calibration" in str(errors[0])
