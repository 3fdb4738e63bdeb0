"""`make models` in full, with so few steps that it takes seconds."""

from pathlib import Path
from zipfile import ZipFile, is_zipfile

import numpy as np
import pytest

from edgemeter.agent import runtimes
from edgemeter.agent.contract import model_card, model_file
from edgemeter.agent.contract.model_formats import runtime_for
from edgemeter.models.catalogue import shipped_models
from tests.shipped_models import build
from tests.shipped_models.build import Recipe
from tests.shipped_models.drawn_scenes import Stream, draw_scene

pytestmark = [pytest.mark.convert, pytest.mark.torch, pytest.mark.nightly]

STEPS = 30


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Return the models of a short build, and what it reported of its progress."""
    reports = []
    models = build.build_shipped(
        tmp_path_factory.mktemp("built"), Recipe(seed=3, steps=STEPS, scenes=4), lambda *step: reports.append(step)
    )
    return models, reports


def run(model, image):
    """Return what a file answers to an image, as real numbers."""
    runtime = runtimes.create(runtime_for(model.path))
    loaded = runtime.load(model.path, runtimes.Options())
    values = image.astype(np.float32)[None] / 255
    values = values if model.about.input.layout == "NHWC" else np.ascontiguousarray(values.transpose(0, 3, 1, 2))
    (info,) = loaded.inputs
    if info.scale is not None:
        values = np.clip(np.rint(values / info.scale) + info.zero_point, -128, 127).astype(info.dtype)
    runtime.bind([values])()
    outputs = runtime.outputs()
    runtime.close()
    infos = loaded.outputs or [runtimes.TensorInfo("", (), "float32")] * 2
    return [runtimes.dequantise(output, info) for output, info in zip(outputs, infos, strict=True)]


def test_five_files_with_cards_are_made(built):
    """Each card holds the hash of its file and how it was made."""
    models, _ = built
    assert sorted(model.path.name for model in models) == sorted(model.path.name for model in shipped_models.shipped_models())
    for model in models:
        assert model_card.read_card(model_card.card_path(model.path)) == model.about
        assert model.about.sha256 == model_file.sha256(model.path)
        assert (model.about.made["seed"], model.about.made["steps"]) == (3, STEPS)


def test_all_files_give_the_outputs_of_one_network(built):
    """Every fp32 file agrees to rounding; int8 files follow them to a few quantisation steps."""
    models, _ = built
    image = draw_scene(3, Stream.VALIDATION, 0).image
    answers = {model.path.name: run(model, image) for model in models}
    boxes, scores = answers["edgemeter-shapes_fp32.torchscript"]
    assert boxes.std() > 0
    for model in models:
        found_boxes, found_scores = answers[model.path.name]
        share = 1e-4 if model.about.precision == "fp32" else 0.1
        np.testing.assert_allclose(found_boxes, boxes, atol=share * boxes.max(), err_msg=model.path.name)
        np.testing.assert_allclose(found_scores, scores, atol=max(share * scores.max(), 0.005 * (share > 0.01)), err_msg=model.path.name)


def test_no_file_shows_where_it_was_made(built):
    """No path of this machine's sources or libraries in any file, compressed members included."""
    models, _ = built
    places = [str(Path(module.__file__).parents[1]).encode() for module in (build, np)]
    for model in models:
        contents = [model.path.read_bytes()]
        if is_zipfile(model.path):
            with ZipFile(model.path) as archive:
                contents += [archive.read(name) for name in archive.namelist()]
        assert not any(folder in content for folder in places for content in contents), model.path.name


def test_progress_reaches_the_end_of_every_step(built):
    """Drawing, training, writing and scoring all report, and end at their total."""
    _, reports = built
    last = {step.split(",")[0]: (count, total) for step, count, total in reports}
    assert {"drawing validation scenes", "drawing scenes", "training"} <= last.keys()
    assert all(count == total for step, (count, total) in last.items() if not step.startswith("writing"))
    assert sum(step.startswith("scoring") for step in last) == 5
