"""Ultralytics YOLO: the network's own numbers, as its exports have them, fused or not, and nothing of the user's settings touched."""

import importlib
import os
from pathlib import Path

import numpy as np
import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.recognition.metadata import read_self_description

pytestmark = [pytest.mark.needs(module="ultralytics"), pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
FACTORY = "ultralytics_yolo"


@pytest.fixture(scope="module")
def yolo(tmp_path_factory):
    """Return a file of YOLOv8n, untrained, and its network."""
    folder = tmp_path_factory.mktemp("yolo")
    os.environ.update(YOLO_OFFLINE="true", YOLO_AUTOINSTALL="false", YOLO_CONFIG_DIR=str(folder))
    plain = importlib.import_module("ultralytics").YOLO("yolov8n.yaml")
    plain.save(str(folder / "yolov8n.pt"))
    return folder / "yolov8n.pt", plain.model.eval()


@pytest.mark.parametrize("fuse", ["no", "yes"])
def test_outputs_are_those_of_the_network(drive, yolo, fuse):
    """84 rows for 80 classes; fusing changes them by rounding only, and is noted."""
    path, network = yolo
    torch = importlib.import_module("torch")
    x = np.random.default_rng(1).random((1, 3, 64, 64), np.float32)
    with torch.no_grad():
        expected = network(torch.from_numpy(x))[0].numpy()
    model = drive(FACTORY, file=path, input="1x3x64x64", fuse=fuse)
    (output,) = model(x)
    assert output.shape == (1, 84, 84)
    np.testing.assert_allclose(output, expected, rtol=1e-3, atol=1e-3)
    assert model.facts() == {"fused": fuse}
    assert torch.get_num_threads() == 1


def test_it_describes_itself_as_its_exports_do(drive, yolo):
    """Classes, size and task, by which the decoder is found."""
    loaded = drive(FACTORY, file=yolo[0]).loaded
    description = read_self_description(loaded.metadata)
    assert (len(description.labels), description.size, description.task, description.head) == (80, (640, 640), "detect", "Detect")
    assert (loaded.name, loaded.inputs[0].shape, loaded.package) == ("yolov8n", (1, 3, 640, 640), "ultralytics")


def test_bad_options_are_one_line(drive, yolo, tmp_path):
    """Each names what was given and what would do."""
    (tmp_path / "broken.pt").write_bytes(b"no model")
    for options, message in [
        ({"file": tmp_path / "absent.pt"}, "does not exist"),
        ({"file": Path(__file__)}, r"is no \.pt"),
        ({"file": tmp_path / "broken.pt"}, r"name a \.pt of Ultralytics"),
        ({"file": yolo[0], "fuse": "maybe"}, "yes, no"),
    ]:
        with pytest.raises(ConfigError, match=message) as raised:
            drive(FACTORY, **options)
        assert "\n" not in str(raised.value)
