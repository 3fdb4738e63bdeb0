"""Facts about depth: AbsRel and delta as their papers define them, alignment of inverse depth, files that are scored."""

import numpy as np
import pytest
from PIL import Image

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.datasets.dataset import open_folder
from edgemeter.agent.tasks import create
from edgemeter.agent.tasks.pixels import depth_errors
from tests.fixtures.onnx_factory import brightness_as_depth
from tests.fixtures.task_data import CARD, scored
from tests.fixtures.vision_factory import make_card, make_input, make_loaded, tensors


def photographs(folder, depths, *, is_png):
    """Write photographs whose brightness is the depth over ten metres, and maps of these depths."""
    (folder / "images").mkdir(parents=True)
    (folder / "maps").mkdir()
    for number, values in enumerate(depths):
        grey = np.rint(values * 25.5).astype(np.uint8)
        Image.fromarray(np.stack([grey] * 3, axis=2)).save(folder / "images" / f"{number:02}.png")
        if is_png:
            Image.fromarray(np.rint(values * 256).astype(np.uint16)).save(folder / "maps" / f"{number:02}.png")
        else:
            np.save(folder / "maps" / f"{number:02}.npy", values.astype(np.float32))
    return open_folder(folder / "images", folder / "maps")


def task_for(data, depth="metres"):
    """Return the task of a model of 64 x 64 that gives the depth of every pixel."""
    card = make_card("depth", "depth", make_input(layout="NCHW"), depth=depth)
    return create(card, make_loaded(tensors((1, 64, 64)), tensors((1, 3, 64, 64), names=("images",))), data)


def test_errors_are_those_of_the_papers():
    """AbsRel = mean |p - t| / t; delta = share within a factor of 1.25, 1.25^2, 1.25^3; RMSE."""
    truth, predicted = np.array([1.0, 2.0, 4.0, 8.0]), np.array([1.0, 3.0, 4.4, 4.0])
    absolute, *deltas, rmse = depth_errors(predicted, truth, is_inverse=False)
    assert absolute == pytest.approx((0 + 0.5 + 0.1 + 0.5) / 4)
    assert deltas == pytest.approx([0.5, 0.75, 0.75])
    assert rmse == pytest.approx(np.sqrt((0 + 1 + 0.16 + 16) / 4))


def test_inverse_depth_is_aligned_in_scale_and_shift():
    """Any scale and shift of the true inverse is without error; without alignment it is not."""
    truth = np.random.default_rng(0).uniform(1, 20, 500)
    inverse = 37.5 / truth + 12
    assert depth_errors(inverse, truth, is_inverse=True)[0] == pytest.approx(0, abs=1e-9)
    assert depth_errors(inverse, truth, is_inverse=False)[0] > 0.5


def test_the_figures_are_means_over_photographs_and_unmeasured_pixels_do_not_count(tmp_path):
    """A photograph with few measured pixels counts as much as another; 0 is no measurement."""
    draw = np.random.default_rng(1)
    truth = [draw.uniform(1, 9, (64, 64)).astype(np.float32) for _ in range(24)]
    for number, values in enumerate(truth):
        values[: 2 * number] = 0
    task = task_for(photographs(tmp_path, truth, is_png=False))
    expected = []
    for index, values in enumerate(truth):
        task.prepare(index)
        predicted = (values + draw.normal(0, 0.5, values.shape)).clip(0.5, None).astype(np.float32)
        assert task.predict(index, [[predicted[None]]]) is None
        measured = values > 0
        capped = np.minimum(predicted[measured], values.max())
        expected.append(float((np.abs(capped - values[measured]) / values[measured]).mean()))
    accuracy = task.score()
    assert accuracy.value == pytest.approx(np.mean(expected), rel=1e-5)
    assert (accuracy.metric, accuracy.better, accuracy.images) == ("abs_rel", "lower", 24)
    assert 0 < accuracy.low < accuracy.value < accuracy.high
    assert set(accuracy.detail) == {"delta1", "delta2", "delta3", "rmse_m"}


@pytest.mark.parametrize("is_png", [True, False])
def test_a_real_model_is_scored_on_its_depths(tmp_path, is_png):
    """An ONNX file whose depth is the brightness: hardly an error, of maps as KITTI's PNG and as arrays; the gate is passed by less."""
    columns = np.repeat(np.linspace(2, 9, 8), 8)
    photographs(tmp_path, [np.tile(np.roll(columns, 8 * (number % 2)), (64, 1)) for number in range(24)], is_png=is_png)
    model = brightness_as_depth(tmp_path / "depth.onnx")
    text = CARD.format(task="depth", family="depth", more="").replace('classes = 1\nlabels = ["box"]\n', "")
    model.with_name("depth.onnx.toml").write_text(text)
    scores = scored(model, tmp_path, annotations=str(tmp_path / "maps"))
    assert scores.accuracy.metric == "abs_rel"
    # Between cells of four pixels depths are interpolated, and a jump of a metre is none.
    assert 0 < scores.accuracy.value < 0.1
    assert scores.accuracy.detail["delta1"] > 0.8
    assert scores.verdict.state != "invalid"


def test_depths_that_are_no_numbers_end_in_one_line(tmp_path):
    """An overflow is no depth."""
    task = task_for(photographs(tmp_path, [np.full((64, 64), 5.0)], is_png=False), "inverse")
    task.prepare(0)
    task.predict(0, [[np.full((1, 64, 64), np.nan, np.float32)]])
    assert np.isfinite(task.score().value)
    with pytest.raises(ConfigError, match=r"task depth needs an output of \[1, rows, columns\]"):
        task.predict(0, [[np.zeros((1, 3, 64, 64), np.float32)]])
