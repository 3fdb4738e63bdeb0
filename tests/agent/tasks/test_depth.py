"""Facts about `edgemeter.agent.tasks.depth`, held against the papers' definitions and protocols, written out again pixel by pixel."""

import math
import statistics

import numpy as np
import pytest
from PIL import Image

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract.model_card import CardOutput
from edgemeter.agent.datasets.dataset import open_folder
from edgemeter.agent.tasks import create
from edgemeter.agent.tasks.depth import DepthProtocol, depth_errors, protocol_of
from tests.fixtures.onnx_factory import brightness_as_depth
from tests.fixtures.rows import table_row
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


def errors(predicted, truth, **settings):
    """Return the errors of two rows of pixels."""
    protocol = DepthProtocol(**settings)
    return depth_errors(np.atleast_2d(predicted), np.atleast_2d(truth), protocol)


def test_errors_are_those_of_the_papers():
    """AbsRel = mean |p - t| / t; delta = share within a factor of 1.25, 1.25^2, 1.25^3; RMSE."""
    truth, predicted = np.array([1.0, 2.0, 4.0, 8.0]), np.array([1.0, 3.0, 4.4, 4.0])
    absolute, *deltas, rmse = errors(predicted, truth)
    assert absolute == pytest.approx((0 + 0.5 + 0.1 + 0.5) / 4)
    assert deltas == pytest.approx([0.5, 0.75, 0.75])
    assert rmse == pytest.approx(np.sqrt((0 + 1 + 0.16 + 16) / 4))


def test_inverse_depth_is_aligned_in_scale_and_shift():
    """Any scale and shift of the true inverse is without error; without alignment it is not."""
    truth = np.random.default_rng(0).uniform(1, 20, 500)
    inverse = 37.5 / truth + 12
    assert errors(inverse, truth, is_inverse=True, scaling="least-squares")[0] == pytest.approx(0, abs=1e-9)
    assert errors(inverse, truth)[0] > 0.5


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


def evaluated(predicted, truth, nearest, limit, window, *, is_disparity):
    """Return AbsRel and RMSE of one map as Monodepth2's `evaluate_depth.py` has them, pixel by pixel, without an array operation."""
    top, bottom, first, end = window
    pairs = [
        (1 / float(predicted[y][x]) if is_disparity else float(predicted[y][x]), float(truth[y][x]))
        for y in range(top, bottom)
        for x in range(first, end)
        if nearest < truth[y][x] < limit
    ]
    ratio = statistics.median(t for _, t in pairs) / statistics.median(p for p, _ in pairs) if is_disparity else 1.0
    capped = [(min(max(p * ratio, nearest), limit), t) for p, t in pairs]
    return statistics.fmean(abs(p - t) / t for p, t in capped), math.sqrt(statistics.fmean((p - t) ** 2 for p, t in capped))


@pytest.mark.parametrize(
    ("folder", "size", "limit", "window", "output"),
    [
        ("kitti/val", (64, 64), 80.0, (26, 63, 2, 61), {}),
        ("kitti/val", (64, 64), 80.0, (26, 63, 2, 61), {"depth": "inverse", "depth_scaling": "median"}),
        ("kitti/val", (64, 64), 50.0, (21, 58, 2, 61), {"depth_max_m": 50.0, "depth_crop": "eigen"}),
        ("NYU_v2/test", (640, 480), 10.0, (45, 471, 41, 601), {}),
        ("mine", (64, 64), 1e9, (0, 64, 0, 64), {"depth_max_m": 1e9}),
    ],
)
def test_limits_and_crops_are_those_of_the_papers(tmp_path, folder, size, limit, window, output):
    """KITTI: 80 m, Garg's crop; NYU: 10 m, Eigen's; a card replaces each; nothing outside counts, and predictions are cut at the limit."""
    draw = np.random.default_rng(8)
    width, height = size
    farthest = min(1.5 * limit, 150.0)
    truth = draw.uniform(0.2, farthest, (height, width)).astype(np.float32)
    truth[draw.random(truth.shape) < 0.3] = 0
    predicted = (np.maximum(truth, 1) * draw.uniform(0.5, 2.0, truth.shape)).astype(np.float32)
    if "depth_scaling" in output:
        predicted = np.float32(7.5) / predicted
    root = tmp_path / folder
    (root / "images").mkdir(parents=True)
    (root / "maps").mkdir()
    Image.new("RGB", size).save(root / "images" / "a.png")
    np.save(root / "maps" / "a.npy", truth)
    card = make_card("depth", "depth", make_input(layout="NCHW", height=height, width=width), **output)
    loaded = make_loaded(tensors((1, height, width)), tensors((1, 3, height, width), names=("images",)))
    task = create(card, loaded, open_folder(root / "images", root / "maps"))
    task.prepare(0)
    task.predict(0, [[predicted[None]]])
    accuracy = task.score()
    expected = evaluated(predicted.tolist(), truth.tolist(), 1e-3, limit, window, is_disparity="depth_scaling" in output)
    assert (accuracy.value, accuracy.detail["rmse_m"]) == (pytest.approx(expected[0], rel=1e-6), pytest.approx(expected[1], rel=1e-6))
    assert f"to {limit:g} m" in accuracy.normalisation


def test_the_protocol_is_named_and_a_card_replaces_its_parts():
    """By words in names, not by parts of words: `kittiwake` and `nyugat` are other data."""
    for names, output, words in [
        (["KITTI_eigen", "maps"], {}, "kitti: 0.001 to 80 m, crop garg, scaling none"),
        (["nyu_depth_v2"], {"depth": "inverse"}, "nyu: 0.001 to 10 m, crop eigen-nyu, scaling least-squares"),
        (["nyugat", "kittiwake"], {}, "plain: 0.001 to the farthest of each photograph, crop none, scaling none"),
        (["kitti"], {"depth_min_m": 2.0, "depth_crop": "none"}, "kitti: 2 to 80 m, crop none, scaling none"),
    ]:
        with table_row(names, output):
            assert protocol_of(CardOutput(**output), names).words == words


def test_a_crop_of_another_size_is_refused():
    """Eigen's crop of NYU is in pixels of 640 x 480."""
    with pytest.raises(ConfigError, match=r"the crop eigen-nyu is that of maps of 640 x 480, one here has 64 x 32: set output\.depth_crop"):
        errors(np.ones((32, 64)), np.ones((32, 64)), crop="eigen-nyu")


def test_a_cap_limits_aligned_inverse_depth_as_midas_does():
    """Scale and shift fitted by the normal equations, then the inverse cut at 1 / cap: pixel by pixel."""
    draw = np.random.default_rng(9)
    truth = draw.uniform(1, 100, 400)
    inverse = 12 / truth + 3 + draw.normal(0, 0.2, 400)
    pairs = [(p, t) for p, t in zip(inverse.tolist(), truth.tolist(), strict=True) if t < 80]
    n, sx, sy = len(pairs), sum(p for p, _ in pairs), sum(1 / t for _, t in pairs)
    sxx, sxy = sum(p * p for p, _ in pairs), sum(p / t for p, t in pairs)
    scale = (n * sxy - sx * sy) / (n * sxx - sx * sx)
    shift = (sy - scale * sx) / n
    expected = statistics.fmean(abs(1 / max(scale * p + shift, 1 / 80) - t) / t for p, t in pairs)
    value = errors(inverse, truth, farthest_m=80.0, is_inverse=True, scaling="least-squares")[0]
    assert value == pytest.approx(expected, rel=1e-9)
