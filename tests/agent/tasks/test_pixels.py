"""Facts about `edgemeter.agent.tasks.pixels`: the class of every pixel."""

import importlib

import numpy as np
import pytest
from PIL import Image

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.datasets.dataset import open_folder
from edgemeter.agent.tasks import create
from tests.fixtures.rows import in_folders, table_row
from tests.fixtures.vision_factory import make_card, make_input, make_loaded, tensors


def mapped_photographs(folder, maps, size=(64, 64), ending=""):
    """Write photographs of that size (width, height), and these maps.

    Each photograph has a colour of its own.
    """
    (folder / "images").mkdir(parents=True)
    (folder / "maps").mkdir()
    for number, values in enumerate(maps):
        Image.new("RGB", size, (8 * number, 90, 90)).save(folder / "images" / f"{number:02}.jpg")
        Image.fromarray(values.astype(np.uint8)).save(folder / "maps" / f"{number:02}{ending}.png")
    return open_folder(folder / "images", folder / "maps")


def segmenter_of(data, classes=5, shape=None, **output):
    """Return the task of a model of 64 x 64 with scores in cells of four pixels."""
    card = make_card(
        "scores",
        "semantic-segmentation",
        make_input(layout="NCHW", resize="letterbox"),
        classes=classes,
        **output,
    )
    return create(
        card,
        make_loaded(
            tensors(shape or (1, classes, 16, 16)), tensors((1, 3, 64, 64), names=("images",))
        ),
        data,
    )


def ious(predicted, truth, classes):
    """Return intersection over union of each class over all maps, by counting pixel after pixel."""
    result = []
    for label in range(classes):
        both = sum(
            int(((f == label) & (t == label)).sum()) for f, t in zip(predicted, truth, strict=True)
        )
        either = sum(
            int((((f == label) | (t == label)) & (t != 255)).sum())
            for f, t in zip(predicted, truth, strict=True)
        )
        result.append(both / either if either else None)
    return result


@pytest.mark.torch
def test_miou_is_that_of_the_definition_on_letterboxed_photographs(tmp_path):
    """Scores are interpolated as PyTorch does it, and the bars are cut off.

    255 does not count, and a class in no map and no output is none.
    """
    torch = importlib.import_module("torch")
    draw = np.random.default_rng(3)
    truth = [
        draw.choice([0, 1, 2, 3, 255], (48, 96), p=[0.3, 0.3, 0.2, 0.1, 0.1]) for _ in range(24)
    ]
    task = segmenter_of(mapped_photographs(tmp_path, truth, (96, 48)))
    predicted = []
    for index in range(len(truth)):
        scores = draw.normal(size=(1, 5, 16, 16)).astype(np.float32)
        scores[:, 4] = -9
        task.prepare(index)
        assert task.predict(index, [[scores]]) is None
        # A photograph of 96 x 48 fills the rows 16 to 48 of 64; PyTorch sees what repeats the rim.
        inside = torch.nn.functional.interpolate(
            torch.from_numpy(scores), (96, 96), mode="bilinear", align_corners=False
        )
        predicted.append(task._classes(index, [[scores]]))
        # Rounding decides where two scores are equal to seven digits.
        assert (predicted[-1] == inside[0, :, 24:72].argmax(0).numpy()).mean() > 0.999
    expected = ious(predicted, truth, 5)
    accuracy = task.score()
    assert expected[4] is None
    assert accuracy.value == pytest.approx(np.mean(expected[:4]), abs=1e-12)
    assert [*accuracy.per_class.values()] == pytest.approx(expected)
    right = sum(int((f == t).sum()) for f, t in zip(predicted, truth, strict=True))
    assert accuracy.detail["pixel_accuracy"] == pytest.approx(
        right / sum(int((t != 255).sum()) for t in truth)
    )
    assert accuracy.low < accuracy.value < accuracy.high
    assert (accuracy.metric, accuracy.images, len(accuracy.without_parts)) == ("miou", 24, 20)


def test_every_layout_of_an_output_gives_the_same_classes(tmp_path):
    """Layouts are [1, classes, h, w], [1, h, w, classes] and whole classes as [1, h, w]."""
    for folder, layout in in_folders(tmp_path, ["planes", "last", "classes"]):
        with table_row(layout):
            truth = np.zeros((64, 64))
            truth[:, 32:] = 2
            scores = np.zeros((1, 3, 64, 64), np.float32)
            scores[0, 0, :, :32], scores[0, 2, :, 32:] = 1, 1
            output = {
                "planes": scores,
                "last": scores.transpose(0, 2, 3, 1).copy(),
                "classes": scores.argmax(1).astype(np.int64),
            }[layout]
            data = mapped_photographs(folder, [truth])
            card = make_card(
                "scores", "semantic-segmentation", make_input(layout="NCHW"), classes=3
            )
            task = create(
                card,
                make_loaded(
                    tensors(output.shape, dtype=str(output.dtype)),
                    tensors((1, 3, 64, 64), names=("images",)),
                ),
                data,
            )
            task.prepare(0)
            task.predict(0, [[output]])
            assert (task.score().value, task.same_predictions(0, [[output]], [[output]])) == (
                1.0,
                1.0,
            )


def test_one_channel_is_the_second_of_two_classes(tmp_path):
    """A segmenter of people gives a probability above one half or a logit above zero."""
    truth = np.zeros((64, 64))
    truth[:, 32:] = 1
    data = mapped_photographs(tmp_path, [truth])
    for off, on, shape in [
        (0.4, 0.6, (1, 1, 64, 64)),
        (-0.2, 3.0, (1, 1, 64, 64)),
        (0.0, 1.0, (1, 64, 64, 1)),
    ]:
        task = segmenter_of(data, 2, shape)
        task.prepare(0)
        task.predict(0, [[np.where(truth > 0, on, off).astype(np.float32).reshape(shape)]])
        assert task.score().value == 1.0, (off, on, shape)


def test_a_map_of_other_classes_is_refused(tmp_path):
    """The first class may have any number, and what lies below it does not count."""
    scores = np.zeros((1, 2, 16, 16), np.float32)
    scores[0, 1] = 1
    for folder, offset, value in in_folders(tmp_path, [(0, 2), (1, 3), (1, 2)]):
        truth = np.zeros((64, 64))
        truth[:, :32] = value
        task = segmenter_of(mapped_photographs(folder, [truth]), 2, label_offset=offset)
        task.prepare(0)
        if (offset, value) == (1, 2):
            task.predict(0, [[scores]])
            assert task.score().value == 1.0
            continue
        with (
            table_row(offset, value),
            pytest.raises(
                ConfigError, match=f"has class {value}, the model 2 classes from {offset} on"
            ),
        ):
            task.predict(0, [[scores]])


def test_spoilt_and_missing_maps_end_in_one_line(tmp_path):
    """Garbage, another size, colours and a missing map are refused.

    So is a data set of boxes for a model of pixels.
    """
    data = mapped_photographs(tmp_path, [np.zeros((64, 64))] * 2)
    scores = np.zeros((1, 5, 16, 16), np.float32)
    for content, words in (
        (lambda path: path.write_bytes(b"\x89PNG garbage"), "01.png"),
        (
            lambda path: Image.new("L", (32, 64)).save(path),
            "has 32 x 64 pixels, its photograph 64 x 64",
        ),
        (lambda path: Image.new("RGB", (64, 64)).save(path), "more than one number a pixel"),
    ):
        content(tmp_path / "maps" / "01.png")
        task = segmenter_of(data)
        task.prepare(1)
        with pytest.raises(ConfigError, match=words):
            task.predict(1, [[scores]])
    # Cityscapes' folders name them so.
    (tmp_path / "maps" / "01.png").rename(tmp_path / "maps" / "01_gtFine_labelTrainIds.png")
    assert open_folder(tmp_path / "images", tmp_path / "maps").sha256 != data.sha256
    (tmp_path / "maps" / "01_gtFine_labelTrainIds.png").unlink()
    with pytest.raises(ConfigError, match=r"the photograph '01\.jpg' has no map in"):
        open_folder(tmp_path / "images", tmp_path / "maps")
    (tmp_path / "index.csv").write_text("file,class\n00.jpg,0\n")
    with pytest.raises(
        ConfigError,
        match="predicts every pixel, the ground truth of 'images' is that of another task",
    ):
        segmenter_of(open_folder(tmp_path / "images", tmp_path / "index.csv"))
