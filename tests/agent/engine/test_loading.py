"""What the record holds of model and data as they were loaded."""

from pathlib import Path

import numpy as np
from PIL import Image

from edgemeter.agent.datasets.dataset import open_folder
from edgemeter.agent.engine.loading import LoadedModel, describe_dataset, describe_model, describe_tensors
from edgemeter.agent.recognition.recognise import recognise
from edgemeter.agent.runtimes import TensorInfo
from edgemeter.agent.runtimes.replay import ReplayRuntime
from tests.fixtures.replay_case import replay_case
from tests.fixtures.rows import table_row
from tests.fixtures.run_jobs import run_job
from tests.fixtures.vision_factory import make_loaded, tensors


def test_the_record_counts_photographs_that_had_to_be_changed(tmp_path):
    """Turned by EXIF, alpha dropped, CMYK converted, 16 bits reduced: each by itself, over all photographs."""
    exif = Image.Exif()
    exif[0x0112] = 6
    for name in ("a.jpg", "b.jpg"):
        Image.new("RGB", (6, 4)).save(tmp_path / name, exif=exif)
    Image.new("RGBA", (6, 4)).save(tmp_path / "c.png")
    Image.new("CMYK", (6, 4)).save(tmp_path / "d.jpg")
    Image.new("I;16", (6, 4)).save(tmp_path / "e.png")
    Image.new("RGB", (6, 4)).save(tmp_path / "f.png")
    described = describe_dataset(open_folder(tmp_path), 0)
    counts = (described.turned_by_exif, described.alpha_dropped, described.cmyk_converted, described.reduced_to_8_bit)
    assert (described.images, counts) == (6, (2, 1, 1, 1))


def test_a_family_that_the_file_does_not_confirm_has_a_question_mark(tmp_path):
    """The outputs of a pose without metadata, timed on noise; and of a detector with COCO's 80 classes."""
    for columns, family in [(56, "yolov8?"), (84, "yolov8")]:
        with table_row(columns):
            loaded = make_loaded(tensors((1, columns, 8400)), tensors((1, 3, 640, 640)))
            card, guesses = recognise(Path("m.onnx"), loaded)
            model = LoadedModel(ReplayRuntime(), loaded, card, guesses, None, None)
            case = replay_case(tmp_path, "m", 1.0)
            work = run_job(case)
            assert describe_model(work, model).family == family


def test_a_tensor_has_its_declared_quantisation_and_the_shape_that_it_had():
    """Names and steps come from the model, shape and type from the run."""
    declared = TensorInfo("boxes", (None, 4), "int8", 0.6, -128)
    (tensor,) = describe_tensors([declared], [np.zeros((2, 4), np.int8)])
    assert (tensor.name, tensor.shape, tensor.dtype, tensor.scale, tensor.zero_point) == ("boxes", (2, 4), "int8", 0.6, -128)
