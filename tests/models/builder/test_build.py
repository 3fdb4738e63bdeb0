"""`make models` in full, with so few steps that it takes seconds."""

import importlib
from pathlib import Path
from zipfile import ZipFile, is_zipfile

import numpy as np
import pytest

from edgemeter.agent import runtimes
from edgemeter.agent.base.progress import no_progress
from edgemeter.agent.contract import model_file
from edgemeter.agent.contract.model_formats import runtime_for
from edgemeter.models.builder import build
from edgemeter.models.builder.drawn_scenes import Stream, draw_scene
from edgemeter.models.catalogue.shipped_models import find_model, shipped_models

STEPS = 30


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


@pytest.mark.convert
@pytest.mark.nightly
def test_five_files_of_one_network_are_made_with_cards(tmp_path):
    """The fp32 files agree to rounding, the int8 ones follow; a card holds the hash of its file, and no file a path of this machine."""
    accuracies = build.build_shipped(tmp_path, 3, STEPS, no_progress)
    assert sorted(accuracies) == sorted(model.path.name for model in shipped_models())
    models = [find_model(tmp_path / name) for name in accuracies]
    image = draw_scene(3, Stream.VALIDATION, 0).image
    boxes, scores = next(run(model, image) for model in models if model.path.suffix == ".torchscript")
    assert boxes.std() > 0
    folders = [str(Path(module.__file__).parents[1]).encode() for module in (build, np)]
    for model in models:
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
        assert not any(folder in content for folder in folders for content in contents), model.path.name


@pytest.mark.torch
@pytest.mark.nightly
def test_folding_changes_no_output_and_the_same_seed_trains_the_same_network():
    """Two short trainings agree in every weight, another seed gives another network; normalisations become part of the convolutions."""
    torch, training = (importlib.import_module(name) for name in ("torch", "edgemeter.models.builder.training"))
    first, second, other = (training.train(seed, 4, no_progress) for seed in (5, 5, 6))
    weights = [model.state_dict() for model in (first, second, other)]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
    assert not all(torch.equal(weights[0][name], weights[2][name]) for name in weights[0])
    folded = training.fold(first)
    images = torch.rand(2, 3, 160, 160)
    for before, after in zip(first(images), folded(images), strict=True):
        torch.testing.assert_close(after, before, rtol=1e-4, atol=1e-5)
    assert not any(isinstance(part, torch.nn.BatchNorm2d) for part in folded.modules())
