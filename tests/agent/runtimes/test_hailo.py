"""Facts about Hailo's runtime, with a stand-in for HailoRT.

The tests check what the adapter gives, and what it says where HailoRT refuses.
"""

import json
import struct
from pathlib import Path

import numpy as np
import pytest

from edgemeter.agent.base.errors import ConfigError, UnavailableError
from edgemeter.agent.runtimes import Options
from edgemeter.agent.runtimes.hailo import Hailo
from tests.fixtures import hailo_stand_in, stand_ins

MODEL = Path(__file__).resolve().parents[2] / "fixtures" / "runtimes" / "hailo.hef"
X = np.array([[[[0, 1, 2, 3]]]], np.uint8)


def written(path, streams):
    content = json.dumps(streams).encode()
    path.write_bytes(struct.pack(">III", 0x01484546, 0, len(content)) + content)
    return path


@pytest.fixture
def runtime(tmp_path, monkeypatch):
    stand_ins.hailo(tmp_path, monkeypatch)
    runtime = Hailo()
    yield runtime
    runtime.close()


def test_formats_and_quantisation_are_the_files(runtime):
    """The device's inputs and outputs are not converted on the way."""
    loaded = runtime.load(MODEL, Options())
    assert (loaded.package, loaded.version, loaded.backend, loaded.facts) == (
        "hailort",
        "4.23.0",
        "hailo",
        {"devices": "0000:01:00.0"},
    )
    (output,) = loaded.outputs
    assert (output.dtype, output.scale, output.zero_point, loaded.precision) == (
        "uint8",
        0.5,
        3,
        "unknown",
    )


def test_a_stream_of_several_scales_is_refused(runtime, tmp_path):
    """One scale would decode the other channels wrongly, but equal scales count as one."""
    inputs = [{"name": "x", "shape": [1, 1, 4]}]
    output = {"name": "y", "shape": [1, 1, 2], "zero": 3}
    equal = written(
        tmp_path / "equal.hef", {"inputs": inputs, "outputs": [output | {"scale": [0.5, 0.5]}]}
    )
    assert runtime.load(equal, Options()).outputs[0].scale == 0.5
    runtime.close()
    apart = written(
        tmp_path / "apart.hef", {"inputs": inputs, "outputs": [output | {"scale": [0.5, 0.25]}]}
    )
    with pytest.raises(ConfigError, match="'y' is quantised by channel"):
        runtime.load(apart, Options())


def test_boxes_of_the_runtimes_own_suppression_are_one_array(runtime, tmp_path):
    """Boxes come by class as [1, classes, 5, boxes]; boxes sorted by score are refused."""
    boxes = {
        "name": "boxes",
        "shape": [30],
        "type": "FLOAT32",
        "nms": {"number_of_classes": 2, "max_bboxes_per_class": 3},
    }
    streams = {
        "inputs": [{"name": "x", "shape": [1, 1, 4]}],
        "outputs": [boxes | {"order": "HAILO_NMS_BY_CLASS"}],
    }
    loaded = runtime.load(written(tmp_path / "nms.hef", streams), Options())
    assert [(info.shape, info.dtype) for info in loaded.outputs] == [((1, 2, 5, 3), "float32")]
    runtime.bind([X])()
    assert [output.shape for output in runtime.outputs()] == [(1, 2, 5, 3)]
    runtime.close()
    streams["outputs"][0]["order"] = "HAILO_NMS_BY_SCORE"
    with pytest.raises(ConfigError, match="HAILO_NMS_BY_SCORE, which is not decoded here"):
        runtime.load(written(tmp_path / "score.hef", streams), Options())


def test_a_device_that_is_in_use_or_absent_is_unavailable(runtime, monkeypatch):
    """Each gives one line with what to try."""
    other = hailo_stand_in.VDevice()
    with pytest.raises(
        UnavailableError, match=r"74 \(HAILO_OUT_OF_PHYSICAL_DEVICES\); end what uses it"
    ):
        runtime.load(MODEL, Options())
    other.release()
    monkeypatch.setattr(hailo_stand_in, "DEVICES", [])
    with pytest.raises(UnavailableError, match="no device 'hailo': it finds none"):
        runtime.load(MODEL, Options())
