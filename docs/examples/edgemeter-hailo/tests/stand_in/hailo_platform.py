"""Plays the part of `hailo_platform` without a device: the calls, return values and errors that its source documents.

A model is a HEF header (magic, version, size; big-endian) before a JSON text of streams; every output is 2x + 1 of the first input,
computed when it runs, for `takes_s` seconds.
As recorded of the real one: a second VDevice in a process ends in HAILO_OUT_OF_PHYSICAL_DEVICES (74), buffers must
be C-contiguous and of the stream's size, and a released device runs nothing.
Source: hailo-ai/hailort, hailo_platform/__init__.py and pyhailort/pyhailort.py at 4.18 and 4.23; the second VDevice: issues of its users.
"""

import enum
import json
import struct
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np

__version__ = "4.23.0"
DEVICES = ["0000:01:00.0"]
FormatType = enum.Enum("FormatType", "AUTO UINT8 UINT16 FLOAT32")
FormatOrder = enum.Enum("FormatOrder", "AUTO NHWC HAILO_NMS_BY_CLASS HAILO_NMS_BY_SCORE")
NUMPY = {"UINT8": np.uint8, "UINT16": np.uint16, "FLOAT32": np.float32}


class HailoRTException(Exception):  # noqa: N818 - as HailoRT names it
    """The exception that HailoRT raises."""


class HailoRTInvalidHEFException(HailoRTException):
    """The file is no HEF, or garbled."""


class HailoRTTimeout(HailoRTException):
    """A job did not end in time."""


class Device:
    """A physical device."""

    @staticmethod
    def scan():
        """Return the ids of the devices here."""
        return list(DEVICES)


class VDevice:
    """The virtual device; one a process."""

    opened = 0

    def __init__(self, params=None, *, device_ids=None) -> None:
        del params
        self.is_open = False
        if VDevice.opened >= len(DEVICES):
            raise HailoRTException("libhailort failed with error: 74 (HAILO_OUT_OF_PHYSICAL_DEVICES)")
        VDevice.opened += 1
        self.is_open = True
        self.device_ids = device_ids or DEVICES

    def get_physical_devices_ids(self):
        """Return the ids of what is behind it."""
        return list(self.device_ids)

    def create_infer_model(self, hef_source, name=""):
        """Return the model in a file."""
        del name
        if not self.is_open:
            raise HailoRTException("libhailort failed with error: 8 (HAILO_INTERNAL_FAILURE)")
        return InferModel(self, hef_source)

    def release(self) -> None:
        """Free the device."""
        VDevice.opened -= self.is_open
        self.is_open = False


class Stream:
    """A stream of a model: InferModel.InferStream."""

    def __init__(self, about) -> None:
        self.name = about["name"]
        self.shape = about["shape"]
        self.format = SimpleNamespace(type=FormatType[about.get("type", "UINT8")], order=FormatOrder[about.get("order", "NHWC")])
        self.quant_infos = [SimpleNamespace(qp_scale=about["scale"], qp_zp=about["zero"])] if "scale" in about else []
        self.is_nms = self.format.order.name.startswith("HAILO_NMS")


class InferModel:
    """A model that is not configured yet."""

    def __init__(self, device, path) -> None:
        content = Path(path).read_bytes()
        magic, _, size = struct.unpack_from(">III", content)
        try:
            about = json.loads(content[12 : 12 + size])
        except ValueError as error:
            raise HailoRTInvalidHEFException("Invalid HEF. See hailort.log for more information") from error
        if magic != 0x01484546:
            raise HailoRTInvalidHEFException("Invalid HEF. See hailort.log for more information")
        self.device = device
        self.takes_s = about.get("takes_s", 0)
        self.inputs = [Stream(stream) for stream in about["inputs"]]
        self.outputs = [Stream(stream) for stream in about["outputs"]]
        boxes = [
            SimpleNamespace(name=stream["name"], nms_shape=SimpleNamespace(**stream["nms"]))
            for stream in about["outputs"]
            if "nms" in stream
        ]
        self.hef = SimpleNamespace(get_output_vstream_infos=lambda: boxes)

    @property
    def input_names(self):
        """Return the names of the inputs."""
        return [stream.name for stream in self.inputs]

    @property
    def output_names(self):
        """Return the names of the outputs."""
        return [stream.name for stream in self.outputs]

    def configure(self):
        """Return the model, ready to run."""
        return ConfiguredInferModel(self)


class Edge:
    """A buffer of a stream: ConfiguredInferModel.Bindings.InferStream."""

    def __init__(self, stream) -> None:
        self.stream, self.buffer = stream, None

    def set_buffer(self, buffer) -> None:
        """Take the buffer; it is not copied."""
        if not buffer.flags.c_contiguous:
            raise HailoRTException("Buffer must be C_CONTIGUOUS")
        if buffer.nbytes != int(np.prod(self.stream.shape)) * NUMPY[self.stream.format.type.name]().itemsize:
            raise HailoRTException("libhailort failed with error: 6 (HAILO_INVALID_OPERATION)")
        self.buffer = buffer

    def get_buffer(self, tf_format=False):
        """Return the buffer, boxes in the form [classes, 5, boxes]."""
        return self.buffer.reshape(2, 5, -1) if self.stream.is_nms and tf_format else self.buffer


class Bindings:
    """The buffers of one frame."""

    def __init__(self, model) -> None:
        self.edges = {stream.name: Edge(stream) for stream in (*model.inputs, *model.outputs)}

    def input(self, name=""):
        """Return an input's edge."""
        return self.edges[name]

    def output(self, name=""):
        """Return an output's edge."""
        return self.edges[name]


class ConfiguredInferModel:
    """A model that is ready to run."""

    def __init__(self, model) -> None:
        self.model = model

    def create_bindings(self, input_buffers=None, output_buffers=None):
        """Return the buffers of one frame."""
        bindings = Bindings(self.model)
        for name, buffer in {**(input_buffers or {}), **(output_buffers or {})}.items():
            bindings.edges[name].set_buffer(buffer)
        return bindings

    def run(self, bindings, timeout) -> None:
        """Compute every output, in place."""
        if not self.model.device.is_open or timeout <= 0:
            raise HailoRTTimeout("Received a timeout - hailort has failed because a timeout had occurred")
        time.sleep(self.model.takes_s)
        for binding in bindings:
            array = binding.input(self.model.input_names[0]).buffer
            for name in self.model.output_names:
                buffer = binding.output(name).buffer
                buffer[...] = np.resize(2 * array.astype(np.int64) + 1, buffer.shape).astype(buffer.dtype)
