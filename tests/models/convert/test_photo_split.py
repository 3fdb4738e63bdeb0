"""What chooses an int8 recipe is not what judges it: recipes that toss coins, photographs that are watched, and the sizes of the parts."""

import shutil
from dataclasses import replace
from importlib import import_module

import numpy as np
import pytest
from PIL import Image

from edgemeter.agent.datasets.dataset import open_folder
from edgemeter.agent.vision.preprocess import Preprocessor
from edgemeter.models.convert import conversion, conversion_report, source
from edgemeter.models.convert.photo_split import split
from edgemeter.models.convert.source import CalibrationImages

CARD = (
    'name = "coin"\ntask = "classification"\nfamily = "classifier"\nprecision = "fp32"\n[input]\nheight = 8\nwidth = 8\nlayout = "NCHW"\n'
)


def write_coin(path, seed, *, is_int8=False):
    """Write a classifier that calls a photograph of noise one of two classes, by weights of this seed: heads or tails.

    What is to pass for int8 has a node for it, which nothing reads.
    """
    onnx = import_module("onnx")
    make, kind = onnx.helper, onnx.TensorProto.FLOAT
    weights = np.random.default_rng(seed).standard_normal((192, 1)).astype(np.float32)
    weights = np.concatenate([weights - weights.mean(), np.zeros((192, 1), np.float32)], axis=1)
    nodes = [make.make_node("Flatten", ["image"], ["flat"], name="flat"), make.make_node("MatMul", ["flat", "w"], ["out"], name="match")]
    nodes += [make.make_node("QuantizeLinear", ["flat", "scale"], ["unread"], name="quantise")] if is_int8 else []
    constants = {"w": weights, "scale": np.float32(1)}
    ends = [make.make_tensor_value_info("image", kind, [1, 3, 8, 8])], [make.make_tensor_value_info("out", kind, [1, 2])]
    graph = make.make_graph(nodes, "coin", *ends, [onnx.numpy_helper.from_array(value, name) for name, value in constants.items()])
    onnx.save(make.make_model(graph, opset_imports=[make.make_opsetid("", 18)], ir_version=10), str(path))
    return path


def photographs(folder, count, seed=0):
    """Return a folder of photographs that are noise."""
    draw = np.random.default_rng(seed)
    folder.mkdir()
    for number in range(count):
        Image.fromarray(draw.integers(0, 256, (8, 8, 3), dtype=np.uint8)).save(folder / f"{number:03}.png")
    return open_folder(folder)


def request(folder, calibration, pictures):
    """Return a request for the int8 form of a coin."""
    model = write_coin(folder / "coin.onnx", 1)
    model.with_name("coin.onnx.toml").write_text(CARD)
    model_source = source.load_source(model)
    measured = CalibrationImages(calibration, model_source.about)
    return conversion_report.ConversionRequest(model_source, ("onnx-int8",), folder / "out", measured, pictures, "validation")


@pytest.fixture
def watch(monkeypatch):
    """Return the photographs that were read for each purpose, by their pixels, and what a conversion tells its steps to."""
    read, purposes = {"ranges": set(), "choice": set(), "judgement": set()}, ["judgement"]
    load, measure = Preprocessor.load_photo, CalibrationImages.inputs

    def loading(self, photo):
        read[purposes[-1]].add(np.asarray(photo).tobytes())
        return load(self, photo)

    def measuring(self, **settings):
        arrays = measure(self, **settings)
        while True:
            purposes.append("ranges")
            array = next(arrays, None)
            purposes.pop()
            if array is None:
                return
            yield array

    def tell(words, *_):
        starts = {"choosing the recipe": "choice", "comparing": "judgement"}
        purposes[0] = next((part for start, part in starts.items() if words.startswith(start)), purposes[0])

    monkeypatch.setattr(Preprocessor, "load_photo", loading)
    monkeypatch.setattr(CalibrationImages, "inputs", measuring)
    return read, tell


@pytest.mark.convert
@pytest.mark.nightly
@pytest.mark.parametrize("is_one_folder", [False, True])
def test_no_photograph_has_two_purposes(watch, tmp_path, is_one_folder):
    """As they are read: ranges, choice and judgement have none in common, nor one's copy under another name."""
    read, tell = watch
    data = photographs(tmp_path / "d", 48, 1)
    if is_one_folder:
        shutil.copyfile(data.items[0].path, tmp_path / "d" / "copy.png")
        data = open_folder(tmp_path / "d")
    measured = data if is_one_folder else photographs(tmp_path / "c", 20, 2)
    conversion.convert(request(tmp_path, measured, data), tell)
    sizes = {purpose: len(photos) for purpose, photos in read.items()}
    assert sizes == ({"ranges": 24, "choice": 8, "judgement": 16} if is_one_folder else {"ranges": 20, "choice": 16, "judgement": 32})
    assert len(set.union(*read.values())) == sum(sizes.values())


def parts_of(measured, pictures, *, has_choice=True):
    """Return the names in each part."""
    photos = split(CalibrationImages(measured, None), pictures, has_choice=has_choice)
    return [{item.name for item in part.items} if part else None for part in (photos.ranges.data, photos.choice, photos.judgement)]


def test_too_few_to_keep_apart_are_not_judged(tmp_path):
    """One folder of 15: all are measured on; of 16 a half is judged, of 32 there is a choice, too; two folders share what both hold."""
    sizes = {}
    for count in (1, 15, 16, 32):
        data = photographs(tmp_path / str(count), count)
        sizes[count] = [part and len(part) for part in parts_of(data, None)]
    assert sizes == {1: [1, None, None], 15: [15, None, None], 16: [8, None, 8], 32: [16, 8, 8]}
    few, many = photographs(tmp_path / "few", 5), photographs(tmp_path / "many", 40, 3)
    assert [part and len(part) for part in parts_of(many, few)] == [40, None, 5]
    assert [part and len(part) for part in parts_of(many, few, has_choice=False)] == [40, None, 5]
    assert [part and len(part) for part in parts_of(few, many, has_choice=False)] == [5, None, 40]


def test_the_parts_are_the_same_whatever_the_photographs_are_called(tmp_path):
    """They follow from the contents: renamed, or in another order, none changes its part."""
    data = photographs(tmp_path / "d", 40)
    first = parts_of(data, None)
    renamed = {item.name: f"{39 - number}-{item.name}" for number, item in enumerate(data.items)}
    for item in data.items:
        item.path.rename(item.path.with_name(renamed[item.name]))
    assert parts_of(open_folder(tmp_path / "d"), None) == [{renamed[name] for name in part} for part in first]


def test_ground_truth_goes_with_its_photographs(tmp_path):
    """Each part has the classes of its photographs, and a hash of its own."""
    data = photographs(tmp_path / "d", 60)
    truth = {item.name: number for number, item in enumerate(data.items)}
    data = replace(data, classes=truth)
    photos = split(CalibrationImages(data, None), data, has_choice=True)
    parts = [photos.ranges.data, photos.choice, photos.judgement]
    for part in parts:
        assert list(part.classes.items()) == [(item.name, truth[item.name]) for item in part.items]
    assert len({part.sha256 for part in (*parts, data)}) == 4
