"""`make models` in full, with so few steps that it takes seconds, and what it needs."""

from pathlib import Path
from zipfile import ZipFile, is_zipfile

import msgspec
import numpy as np
import pytest

from edgemeter.agent import runtimes
from edgemeter.agent.base.errors import MeasurementError
from edgemeter.agent.base.progress import no_progress
from edgemeter.agent.contract import model_card, model_file
from edgemeter.agent.contract.model_formats import runtime_for
from edgemeter.models.builder import build, recipe
from edgemeter.models.builder.drawn_scenes import Stream, draw_scene
from edgemeter.models.catalogue.shipped_models import ModelFile, shipped_models

STEPS = 30
# The engine multiplies and caches in 16 bits, and of quantised weights with inputs in 8 bits; PyTorch in 32.


def run(model, image):
    """Return what a file answers to an image, as real numbers."""
    runtime = runtimes.create(runtime_for(model.path))
    loaded = runtime.load(model.path, runtimes.Options(sha256=model_file.sha256(model.path)))
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


def test_a_file_that_lost_more_than_its_precision_explains_ends_a_build():
    """The shipped ones did not; a further file of 32 bits that scores 0.05 less did."""
    models = sorted(shipped_models(), key=lambda model: model.format != "torchscript")
    build.check_drift(models)
    accuracy = {**models[0].about.accuracy, "value": models[0].about.accuracy["value"] - 0.05}
    worse = next(model for model in models[1:] if model.about.precision == "fp32")
    with pytest.raises(MeasurementError, match=worse.path.name):
        build.check_drift([models[0], ModelFile(worse.path, msgspec.structs.replace(worse.about, accuracy=accuracy))])


@pytest.mark.convert
@pytest.mark.nightly
def test_five_files_of_one_network_are_made_with_cards(tmp_path):
    """The fp32 files agree to rounding, the int8 ones follow; a card holds the hash of its file, and no file a path of this machine."""
    models = build.build_shipped(tmp_path, recipe.Recipe(seed=3, steps=STEPS, scenes=4), no_progress)
    assert sorted(model.path.name for model in models) == sorted(model.path.name for model in shipped_models())
    image = draw_scene(3, Stream.VALIDATION, 0).image
    boxes, scores = next(run(model, image) for model in models if model.path.suffix == ".torchscript")
    assert boxes.std() > 0
    places = [str(Path(module.__file__).parents[1]).encode() for module in (build, np)]
    for model in models:
        assert model_card.read_card(model_card.card_path(model.path)) == model.about
        assert model.about.sha256 == model_file.sha256(model.path)
        assert (model.about.made["seed"], model.about.made["steps"]) == (3, STEPS)
        answered_boxes, answered_scores = run(model, image)
        share = 1e-4 if model.about.precision == "fp32" else 0.1
        np.testing.assert_allclose(answered_boxes, boxes, atol=share * boxes.max(), err_msg=model.path.name)
        np.testing.assert_allclose(answered_scores, scores, atol=max(share * scores.max(), 0.005 * (share > 0.01)), err_msg=model.path.name)
        contents = [model.path.read_bytes()]
        if is_zipfile(model.path):
            with ZipFile(model.path) as archive:
                contents += [archive.read(name) for name in archive.namelist()]
        assert not any(folder in content for folder in places for content in contents), model.path.name
