"""TorchScript whose forward takes a list of pictures is recognised by its schema.

Scripted detectors of torchvision and D2Go are of this kind.
"""

import importlib
import re

import numpy as np
import pytest
from PIL import Image

from edgemeter.agent.contract import model_file
from edgemeter.agent.engine import job
from edgemeter.agent.runtimes import TensorInfo
from edgemeter.agent.runtimes.pytorch import PyTorch
from tests.agent.runtimes.conftest import named
from tests.fixtures.run_jobs import one_case, rapid_run, write_photographs

pytestmark = [
    pytest.mark.torch,
    pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*torch.jit:FutureWarning"),
]
RUNTIME = PyTorch

# Finds what is brighter than half: one box around it, of label 2 and score 0.75. D2Go's wrappers
# return the pictures too.
SOURCE = """
import torch
from typing import Dict, List, Tuple

class Finder(torch.nn.Module):
    def find(self, picture: torch.Tensor) -> Dict[str, torch.Tensor]:
        bright = torch.nonzero(picture.mean(0) > 0.5)
        boxes = torch.zeros([0, 4])
        if len(bright) > 0:
            corners = [bright.min(0)[0].flip(0), bright.max(0)[0].flip(0) + 1]
            boxes = torch.cat(corners).float()[None]
        labels = torch.full([len(boxes)], 2)
        return {"boxes": boxes, "labels": labels, "scores": torch.full([len(boxes)], 0.75)}

class LikeTorchvision(Finder):
    def forward(
        self, images: List[torch.Tensor]
    ) -> Tuple[Dict[str, torch.Tensor], List[Dict[str, torch.Tensor]]]:
        losses: Dict[str, torch.Tensor] = {}
        return losses, [self.find(image) for image in images]

class LikeD2Go(Finder):
    def forward(
        self, inputs: List[torch.Tensor]
    ) -> Tuple[List[torch.Tensor], List[Dict[str, torch.Tensor]]]:
        return inputs, [self.find(inputs[0])]

class Bare(Finder):
    def forward(self, images: List[torch.Tensor]) -> List[Dict[str, torch.Tensor]]:
        return [self.find(image) for image in images]
"""


@pytest.fixture(scope="module")
def scripted(tmp_path_factory):
    """Return a function that gives the file of a detector of this class."""
    torch = importlib.import_module("torch")
    folder = tmp_path_factory.mktemp("scripted")
    (folder / "finders_of_a_test.py").write_text(SOURCE)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        finders = importlib.import_module("finders_of_a_test")

    def file(kind):
        path = folder / f"{kind}.pt"
        if not path.exists():
            torch.jit.save(torch.jit.script(getattr(finders, kind)().eval()), str(path))
        return path

    return file


def picture(height=40, width=60):
    """Return a black picture with a white rectangle, uint8 [h, w, 3]: from 10, 20 to 30, 35."""
    pixels = np.zeros((height, width, 3), np.uint8)
    pixels[20:35, 10:30] = 255
    return pixels


def test_a_picture_goes_in_as_a_list_and_detections_come_out(runtime, scripted):
    """The schema tells the input; neither losses nor pictures are among the outputs."""
    for kind in ("LikeTorchvision", "LikeD2Go", "Bare"):
        path = scripted(kind)
        loaded = runtime.load(path, named(path))
        name = {"LikeD2Go": "inputs"}.get(kind, "images")
        assert loaded.inputs == (TensorInfo(name, (3, None, None), "float32"),)
        for height, width in ((40, 60), (35, 31)):
            runtime.bind([(picture(height, width).transpose(2, 0, 1) / np.float32(255))])()
            boxes, labels, scores = runtime.outputs()
            assert (boxes.tolist(), labels.tolist(), scores.tolist()) == (
                [[10, 20, 30, 35]],
                [2],
                [0.75],
            )


def test_photographs_of_several_sizes_are_found_in_and_timed(scripted, tmp_path):
    """Each photograph keeps its size, and the run says which were timed.

    In an empty photograph nothing is found.
    """
    data = write_photographs(
        tmp_path,
        [
            (picture(40, 60), [((20, 27.5, 20, 15), 2)]),
            (picture(90, 50), [((20, 27.5, 20, 15), 2)]),
        ],
    )
    Image.new("RGB", (33, 44)).save(tmp_path / "photographs" / "03.png")
    path = scripted("LikeTorchvision")
    sha256 = model_file.sha256(path)
    card = path.with_name("LikeTorchvision.pt.toml")
    card.write_text(
        'name = "finder"\ntask = "detection"\nfamily = "torchvision"\nprecision = "fp32"\noutput '
        "= { classes = 2 }\n"
        '[input]\nheight = 70\nwidth = 80\nlayout = "NCHW"\nresize = "none"\n'
    )
    measured = rapid_run(path, sha256=sha256, idle_seconds=0.0, **data)
    assert (measured.accuracy.value, measured.answers.found) == (pytest.approx(1), 2)
    assert measured.runtime.facts["timed_shapes"] == "2, from [3, 40, 60] to [3, 90, 50]"
    on_noise = rapid_run(path, sha256=sha256, idle_seconds=0.0)
    assert on_noise.inputs[0].shape == (3, 70, 80)
    assert "timed_shapes" not in on_noise.runtime.facts
    card.unlink()


def test_an_error_in_the_call_is_one_line_without_the_pictures_numbers(runtime, scripted):
    """PyTorch prints the whole tensor that a script does not take."""
    path = scripted("Bare")
    runtime.load(path, named(path))
    noise = np.random.default_rng(0).random((1, 3, 640, 640), np.float32)
    torch = importlib.import_module("torch")
    with pytest.raises(RuntimeError, match="Value: tensor") as error:
        runtime._module(torch.from_numpy(noise))
    message = job.failure(error.value, one_case(scripted("Bare"))).message
    assert "Expected a value of type 'List[Tensor]' for argument 'images'" in message
    assert "tensor([...])" in message
    assert "\n" not in message
    assert len(message) < 500
    assert not re.search(r"0\.\d{3}", message)
