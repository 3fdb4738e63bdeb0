"""From photograph to input tensor, and from outputs to real values."""

import itertools

import numpy as np
import pytest
from PIL import Image

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.runtimes import TensorInfo
from edgemeter.agent.vision import preprocess
from edgemeter.agent.vision.preprocess import Preprocessor, input_of, placement_of, real_values
from edgemeter.agent.vision.resize import resize_bilinear
from tests.fixtures.rows import table_row
from tests.fixtures.vision_factory import make_card, make_input, make_loaded, tensors

FLOAT = TensorInfo("x", (), "float32")


@pytest.fixture
def photo(tmp_path):
    """Return a function that writes a picture of one colour, and gives its path."""

    def write(width, height, colour=(10, 20, 30), name="photo.png"):
        Image.new("RGB", (width, height), colour).save(tmp_path / name)
        return tmp_path / name

    return write


def corners_of(size, image):
    """Return where the photograph's corners come to lie in the input: x1, y1, x2, y2."""
    frame = placement_of(size, image).frame(size, image)
    return (
        frame.offset_x,
        frame.offset_y,
        size[0] * frame.scale_x + frame.offset_x,
        size[1] * frame.scale_y + frame.offset_y,
    )


def test_a_photograph_is_placed_as_its_family_does():
    """It is stretched by a scale for each side, letterboxed or placed at the corner.

    The letterbox is rounded as Ultralytics does; the corner is YOLOX's.
    """
    assert corners_of((100, 50), make_input()) == (0, 0, 64, 64)
    # 640 x 425 in 640 x 640 leaves 215 rows: 107 above (round(107.5 - 0.1)), 108 below.
    assert corners_of((640, 425), make_input(height=640, width=640, resize="letterbox")) == (
        0,
        107,
        640,
        532,
    )
    assert corners_of((500, 333), make_input(height=640, width=640, resize="letterbox")) == (
        0,
        107,
        640,
        533,
    )
    assert corners_of((425, 640), make_input(height=640, width=640, resize="letterbox")) == (
        107,
        0,
        532,
        640,
    )
    assert corners_of(
        (416, 208), make_input(height=416, width=416, resize="letterbox-top-left")
    ) == (0, 0, 416, 208)


def test_a_crop_of_the_whole_shorter_side_lies_within_the_photograph():
    """Pillow refuses a box that begins at -1e-14, so rounding must not give one."""
    image = make_input(resize="centre-crop", crop_ratio=1.0, width=224, height=224)
    for width, height in itertools.product(range(31, 900, 29), range(37, 900, 31)):
        x1, y1, x2, y2 = placement_of((width, height), image).crop
        assert 0 <= x1 < x2 <= width, (width, height)
        assert 0 <= y1 < y2 <= height, (width, height)
        assert x2 - x1 == pytest.approx(y2 - y1)


def test_centre_crop_takes_the_middle_of_the_shorter_side():
    """0.875 of 80 pixels, 70 x 70 in the middle of 160 x 80, become 64 x 64."""
    placement = placement_of((160, 80), make_input(resize="centre-crop"))
    assert placement.crop == (45, 5, 115, 75)
    assert corners_of((160, 80), make_input(resize="centre-crop")) == pytest.approx(
        (-45 * 64 / 70, -5 * 64 / 70, 115 * 64 / 70, 75 * 64 / 70)
    )


def test_a_photograph_that_is_not_resized_is_the_input(photo):
    """It keeps its own size, whatever the card's; a model of one size takes no such input."""
    image = make_input(layout="NCHW", resize="none", height=800, width=600)
    open_input = TensorInfo("images", (3, None, None), "float32")
    tensor, frame = Preprocessor(image, open_input).load(photo(20, 30))
    assert (tensor.shape, frame.input_width, frame.input_height) == ((3, 30, 20), 20, 30)
    assert corners_of((20, 30), image) == (0, 0, 20, 30)
    card = make_card("torchvision", image_input=image)
    assert input_of(card, make_loaded((), (open_input,))) == open_input
    with pytest.raises(
        ConfigError,
        match='resize = "none" in its card photographs keep their own size: choose another',
    ):
        input_of(card, make_loaded((), (TensorInfo("images", (1, 3, 800, 600), "float32"),)))


def test_each_channel_has_its_own_mean_and_sd(photo):
    """The input is (pixel - mean) / sd, channel by channel, in its own channel order."""
    image = make_input(layout="NCHW", mean=(1.0, 2.0, 3.0), sd=(2.0, 4.0, 8.0))
    tensor, _ = Preprocessor(image, FLOAT).load(photo(64, 64))
    assert [np.unique(plane).tolist() for plane in tensor[0]] == [[4.5], [4.5], [3.375]]


def test_a_photograph_is_halved_to_opencv_s_bits(monkeypatch):
    """Without OpenCV, pairs of pixels are added when the width is halved.

    The height may be any.
    """
    monkeypatch.setattr(preprocess, "fastest_resize", lambda: resize_bilinear)
    for width, height in [(128, 96), (128, 97), (2, 128)]:
        pixels = np.random.RandomState(1).randint(0, 256, (height, width, 3)).astype(np.uint8)
        with table_row(width, height):
            image, photo = make_input(resize="letterbox"), Image.fromarray(pixels)
            placement = placement_of(photo.size, image)
            resized = Preprocessor(image, FLOAT).resized(photo, placement)
            assert np.array_equal(
                resized[..., :3], resize_bilinear(pixels, placement.width, placement.height)
            )


def test_integer_inputs_are_quantised_by_the_models_own_scale():
    """Values are rounded to nearest and saturate at the ends."""
    for dtype, scale, zero, mean, sd, expected in [
        ("uint8", 1 / 128, 128, 128.0, 128.0, [0, 77, 255]),
        ("int8", 1 / 255, -128, 0.0, 255.0, [-128, -51, 127]),
        ("int8", 1 / 128, 0, 127.5, 127.5, [-128, -51, 127]),
        ("uint8", None, None, 0.0, 1.0, [0, 77, 255]),
        ("int16", 1 / 32767, 0, 0.0, 255.0, [0, 9894, 32767]),
    ]:
        table = preprocess.pixel_table(
            make_input(mean=(mean,) * 3, sd=(sd,) * 3), TensorInfo("x", (), dtype, scale, zero)
        )
        assert table.dtype == dtype, f"{dtype!r}, {scale!r}, {zero!r}"
        assert table[:, [0, 77, 255]].tolist() == [expected] * 3, f"{dtype!r}, {scale!r}, {zero!r}"


def test_a_dtype_that_no_photograph_becomes_is_refused():
    """Strings, booleans and unknown dtypes are refused in one line."""
    for dtype in ("bool", "object", "bfloat16"):
        with pytest.raises(ConfigError, match=f"dtype '{dtype}'"):
            preprocess.pixel_table(make_input(), TensorInfo("x", (), dtype))


def test_every_mode_becomes_three_channels(tmp_path):
    """Grey, palette, transparent, black-and-white and print photographs are read like others."""
    for mode in ["L", "P", "RGBA", "1", "CMYK"]:
        path = tmp_path / ("photo.tif" if mode == "CMYK" else "photo.png")
        Image.new(mode, (8, 8)).save(path)
        assert Preprocessor(make_input(), FLOAT).load(path)[0].shape == (1, 64, 64, 3), f"{mode!r}"


def test_a_truncated_photograph_is_refused(photo):
    """Its grey lower half would be scored as if it were a photograph."""
    path = photo(200, 200, name="half.jpg")
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(ConfigError, match=r"half\.jpg"):
        Preprocessor(make_input(), FLOAT).load(path)


def test_every_value_is_that_of_the_table(tmp_path):
    """The fast ways give bit by bit what looking each pixel up gives, padding included."""
    pixels = np.random.default_rng(1).integers(0, 256, (32, 64, 3), np.uint8)
    Image.fromarray(pixels).save(tmp_path / "photo.png")
    for info, mean, sd in [
        (FLOAT, (0.0,) * 3, (255.0,) * 3),
        (FLOAT, (103.53, 116.28, 123.675), (57.375, 57.12, 58.395)),
        (TensorInfo("x", (), "float16"), (127.0,) * 3, (128.0,) * 3),
        (TensorInfo("x", (), "int8", 1 / 255, -128), (0.0,) * 3, (255.0,) * 3),
        (TensorInfo("x", (), "uint8", 1 / 255, 0), (0.0,) * 3, (255.0,) * 3),
        (
            TensorInfo("x", (), "int8", 0.0187, -14),
            (123.675, 116.28, 103.53),
            (58.395, 57.12, 57.375),
        ),
        (TensorInfo("x", (), "int16", 1 / 32767, 0), (0.0,) * 3, (255.0,) * 3),
    ]:
        for colour in ["RGB", "BGR"]:
            for layout in ["NHWC", "NCHW"]:
                with table_row(layout, colour, info):
                    image = make_input(
                        layout=layout, colour=colour, mean=mean, sd=sd, resize="letterbox", pad=77
                    )
                    values, _ = Preprocessor(image, info).load(tmp_path / "photo.png")
                    canvas = np.full((64, 64, 3), 77, np.uint8)
                    canvas[16:48] = pixels[..., ::-1] if colour == "BGR" else pixels
                    table = preprocess.pixel_table(image, info)
                    expected = np.stack(
                        [table[channel][canvas[..., channel]] for channel in range(3)],
                        axis=0 if layout == "NCHW" else 2,
                    )
                    assert values.dtype == info.dtype
                    assert np.array_equal(values[0], expected)


def test_the_declared_input_is_taken():
    """Open dimensions fit, and the batch may be open or absent too."""
    for shape in ((1, 64, 64, 3), (None, None, None, 3), (64, 64, 3)):
        assert input_of(make_card("yolov8"), make_loaded(inputs=tensors(shape))).shape == shape
    card = make_card("yolov8", image_input=make_input(layout="NCHW"))
    assert input_of(card, make_loaded(inputs=tensors((1, 3, 64, 64)))).shape == (1, 3, 64, 64)
    # TorchScript declares none.
    assert input_of(card, make_loaded()).dtype == "float32"


def test_another_shape_than_the_cards_is_refused():
    """Layout, size, batch, channels and rank are tested, and both shapes are named."""
    for shape in [
        (1, 3, 64, 64),
        (1, 32, 64, 3),
        (8, 64, 32, 3),
        (1, 64, 64, 1),
        (64, 3),
        (64, 32, 3),
    ]:
        with (
            table_row(shape),
            pytest.raises(ConfigError, match=r"its card has \[1, 64, 64, 3\] \(NHWC\)"),
        ):
            input_of(make_card("yolov8"), make_loaded(inputs=tensors(shape)))
    with pytest.raises(ConfigError, match="takes 2 inputs"):
        input_of(make_card("yolov8"), make_loaded(inputs=tensors((1, 64, 64, 3), (1, 2))))


def test_outputs_become_real_by_their_own_scale():
    """Each output uses its own scale; without declared outputs they are only converted."""
    infos = [TensorInfo("a", (2,), "int8", 0.5, -2), TensorInfo("b", (1,), "float32")]
    outputs = [np.array([-2, 4], np.int8), np.array([1.5], np.float32)]
    first, second = real_values(outputs, make_loaded(infos))
    assert (first.tolist(), second.tolist(), first.dtype) == ([0, 3], [1.5], np.float32)
    assert real_values([np.array([1], np.float16)], make_loaded())[0].dtype == np.float32
