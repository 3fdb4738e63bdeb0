"""Facts about `edgemeter.agent.tasks.pixels`: depth, held against the papers' definitions, and the class of every pixel."""

import numpy as np
import pytest
from PIL import Image

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.datasets.dataset import open_folder
from edgemeter.agent.tasks import create
from edgemeter.agent.tasks.pixels import depth_errors
from tests.fixtures.onnx_factory import brightness_as_depth, pixel_classes
from tests.fixtures.rows import in_folders, table_row
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


def mapped_photographs(folder, maps, size=(64, 64), ending=""):
    """Write grey photographs of that size (width, height) and these maps."""
    (folder / "images").mkdir(parents=True)
    (folder / "maps").mkdir()
    for number, values in enumerate(maps):
        Image.new("RGB", size, (90, 90, 90)).save(folder / "images" / f"{number:02}.jpg")
        Image.fromarray(values.astype(np.uint8)).save(folder / "maps" / f"{number:02}{ending}.png")
    return open_folder(folder / "images", folder / "maps")


def segmenter_of(data, classes=5, shape=None, **output):
    """Return the task of a model of 64 x 64 with scores in cells of four pixels."""
    card = make_card("scores", "semantic-segmentation", make_input(layout="NCHW", resize="letterbox"), classes=classes, **output)
    return create(card, make_loaded(tensors(shape or (1, classes, 16, 16)), tensors((1, 3, 64, 64), names=("images",))), data)


def ious(predicted, truth, classes):
    """Return intersection over union of each class over all maps, by counting pixel after pixel."""
    result = []
    for label in range(classes):
        both = sum(int(((f == label) & (t == label)).sum()) for f, t in zip(predicted, truth, strict=True))
        either = sum(int((((f == label) | (t == label)) & (t != 255)).sum()) for f, t in zip(predicted, truth, strict=True))
        result.append(both / either if either else None)
    return result


@pytest.mark.slow
@pytest.mark.torch
def test_miou_is_that_of_the_definition_on_letterboxed_photographs(tmp_path):
    """Scores interpolated as PyTorch does it, the bars cut off; 255 counts nowhere; a class that is in no map and no output is no class."""
    torch = pytest.importorskip("torch", reason="needs the extra `torch`")
    draw = np.random.default_rng(3)
    truth = [draw.choice([0, 1, 2, 3, 255], (48, 96), p=[0.3, 0.3, 0.2, 0.1, 0.1]) for _ in range(24)]
    task = segmenter_of(mapped_photographs(tmp_path, truth, (96, 48)))
    predicted = []
    for index in range(len(truth)):
        scores = draw.normal(size=(1, 5, 16, 16)).astype(np.float32)
        scores[:, 4] = -9
        task.prepare(index)
        assert task.predict(index, [[scores]]) is None
        # A photograph of 96 x 48 fills the rows 16 to 48 of 64; PyTorch sees what repeats the rim.
        inside = torch.nn.functional.interpolate(torch.from_numpy(scores), (96, 96), mode="bilinear", align_corners=False)
        predicted.append(task._classes(index, [[scores]]))
        # Rounding decides where two scores are equal to seven digits.
        assert (predicted[-1] == inside[0, :, 24:72].argmax(0).numpy()).mean() > 0.999
    expected = ious(predicted, truth, 5)
    accuracy = task.score()
    assert expected[4] is None
    assert accuracy.value == pytest.approx(np.mean(expected[:4]), abs=1e-12)
    assert [part.value for part in accuracy.per_class] == pytest.approx(expected)
    right = sum(int((f == t).sum()) for f, t in zip(predicted, truth, strict=True))
    assert accuracy.detail["pixel_accuracy"] == pytest.approx(right / sum(int((t != 255).sum()) for t in truth))
    assert accuracy.low < accuracy.value < accuracy.high
    assert (accuracy.metric, accuracy.images, len(accuracy.without_parts)) == ("miou", 24, 20)


def test_every_layout_of_an_output_gives_the_same_classes(tmp_path):
    """[1, classes, h, w], [1, h, w, classes], or classes as whole numbers [1, h, w]."""
    for folder, layout in in_folders(tmp_path, ["planes", "last", "classes"]):
        with table_row(layout):
            truth = np.zeros((64, 64))
            truth[:, 32:] = 2
            scores = np.zeros((1, 3, 64, 64), np.float32)
            scores[0, 0, :, :32], scores[0, 2, :, 32:] = 1, 1
            output = {"planes": scores, "last": scores.transpose(0, 2, 3, 1).copy(), "classes": scores.argmax(1).astype(np.int64)}[layout]
            data = mapped_photographs(folder, [truth])
            card = make_card("scores", "semantic-segmentation", make_input(layout="NCHW"), classes=3)
            task = create(
                card, make_loaded(tensors(output.shape, dtype=str(output.dtype)), tensors((1, 3, 64, 64), names=("images",))), data
            )
            task.prepare(0)
            task.predict(0, [[output]])
            assert (task.score().value, task.same_predictions(0, [[output]], [[output]])) == (1.0, 1.0)


@pytest.mark.parametrize(("off", "on", "shape"), [(0.4, 0.6, (1, 1, 64, 64)), (-0.2, 3.0, (1, 1, 64, 64)), (0.0, 1.0, (1, 64, 64, 1))])
def test_one_channel_is_the_second_of_two_classes(tmp_path, off, on, shape):
    """A probability above one half, or a logit above zero, as segmenters of people give it."""
    truth = np.zeros((64, 64))
    truth[:, 32:] = 1
    output = np.where(truth > 0, on, off).astype(np.float32).reshape(shape)
    task = segmenter_of(mapped_photographs(tmp_path, [truth]), 2, shape)
    task.prepare(0)
    task.predict(0, [[output]])
    assert task.score().value == 1.0


@pytest.mark.parametrize(
    ("classes", "offset", "value", "words"),
    [(2, 0, 3, "has class 3, the model 2 classes from 0 on"), (2, 1, 3, "has class 3, the model 2 classes from 1 on"), (2, 1, 2, None)],
)
def test_a_map_of_other_classes_is_refused(tmp_path, classes, offset, value, words):
    """Whichever number the first class has; what lies below it does not count."""
    truth = np.zeros((64, 64))
    truth[:, :32] = value
    task = segmenter_of(mapped_photographs(tmp_path, [truth]), classes, label_offset=offset)
    task.prepare(0)
    scores = np.zeros((1, 2, 16, 16), np.float32)
    scores[0, 1] = 1
    if words is None:
        task.predict(0, [[scores]])
        assert task.score().value == 1.0
        return
    with pytest.raises(ConfigError, match=words):
        task.predict(0, [[scores]])


def test_spoilt_and_missing_maps_end_in_one_line(tmp_path):
    """Garbage, another size, colours, none for a photograph; and a data set of boxes for a model of pixels."""
    data = mapped_photographs(tmp_path, [np.zeros((64, 64))] * 2)
    scores = np.zeros((1, 5, 16, 16), np.float32)
    for content, words in (
        (lambda path: path.write_bytes(b"\x89PNG garbage"), "01.png"),
        (lambda path: Image.new("L", (32, 64)).save(path), "has 32 x 64 pixels, its photograph 64 x 64"),
        (lambda path: Image.new("RGB", (64, 64)).save(path), "more than one number a pixel"),
    ):
        content(tmp_path / "maps" / "01.png")
        task = segmenter_of(data)
        task.prepare(1)
        with pytest.raises(ConfigError, match=words):
            task.predict(1, [[scores]])
    (tmp_path / "maps" / "01.png").unlink()
    with pytest.raises(ConfigError, match=r"the photograph '01\.jpg' has no map in"):
        open_folder(tmp_path / "images", tmp_path / "maps")
    (tmp_path / "index.csv").write_text("file,class\n00.jpg,0\n")
    with pytest.raises(ConfigError, match="predicts every pixel, the ground truth of 'images' is that of another task"):
        segmenter_of(open_folder(tmp_path / "images", tmp_path / "index.csv"))


def test_maps_of_cityscapes_are_found_by_their_names(tmp_path):
    """As its folders name them."""
    data = mapped_photographs(tmp_path, [np.zeros((64, 64))], ending="_gtFine_labelTrainIds")
    assert [path.name for path in data.targets.values()] == ["00_gtFine_labelTrainIds.png"]


def test_a_real_model_is_scored_on_its_pixels(tmp_path):
    """An ONNX file that follows the picture: mIoU 1 with bounds, a valid verdict; other pixels are another hash."""
    data = mapped_photographs(tmp_path, [np.zeros((64, 64))] * 24)
    for item, path in zip(data.items, data.targets.values(), strict=True):
        pixels, x = np.zeros((64, 64, 3), np.uint8), 16 + 4 * (int(item.name[:2]) % 4)
        pixels[16:48, x : x + 24] = 255
        # A photograph of a camera is no PNG, and an edge between cells is no edge in it: PNG keeps it.
        item.path.unlink()
        Image.fromarray(pixels).save(item.path.with_suffix(".png"))
        Image.fromarray((pixels[..., 0] > 0).astype(np.uint8)).save(path)
    model = pixel_classes(tmp_path / "pixels.onnx")
    text = CARD.format(task="semantic-segmentation", family="scores", more="").replace('["box"]', '["dark", "bright"]')
    model.with_name("pixels.onnx.toml").write_text(text.replace("classes = 1", "classes = 2"))
    result = scored(model, tmp_path, annotations=str(tmp_path / "maps"))
    assert result.accuracy.metric == "miou"
    assert result.accuracy.value == pytest.approx(1.0, abs=0.02)
    assert [part.name for part in result.accuracy.per_class] == ["dark", "bright"]
    assert result.verdict.state != "invalid"
    Image.new("L", (64, 64)).save(next(iter(data.targets.values())))
    assert open_folder(tmp_path / "images", tmp_path / "maps").sha256 != result.accuracy.dataset_sha256
