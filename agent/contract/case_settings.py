"""The settings of a case, as a suite's file, options and the API give them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.toml_mistakes import mistakes
from edgemeter.agent.base.types import Count, Name, Positive, Sha256
from edgemeter.agent.contract.record_conditions import Role

Tokens = Annotated[int, msgspec.Meta(ge=1, le=1 << 20)]
Threads = Annotated[int, msgspec.Meta(ge=1, le=1024)]
AccuracyWhen = Literal["every", "first", "never"]
Users = Annotated[int, msgspec.Meta(ge=1, le=256)]
Rate = Annotated[float, msgspec.Meta(ge=0.001, le=1_000_000)]
# At most thirty days.
Minutes = Annotated[float, msgspec.Meta(gt=0, le=43_200)]
Seconds = Annotated[float, msgspec.Meta(ge=0, le=2_592_000)]
Hertz = Annotated[float, msgspec.Meta(ge=1_000_000, le=100_000_000_000)]
Scenario = Literal["single_stream", "multi_stream", "offline", "poisson", "steady", "concurrent"]
# Scenarios in which queries overlap, of a model behind a server.
OVERLAPPING = ("poisson", "concurrent")
ModeName = Literal["rapid", "quick", "normal", "full", "sustained"]


VIDEOS = frozenset({".mp4", ".m4v", ".mkv", ".mov", ".avi", ".webm", ".mpg", ".mpeg", ".ts"})


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The keys of a `[[case]]` or of `[defaults]`; a list stands for each of its values.

    The texts of the keys are the help of their options and the comments of the sample; see `setting_texts`.
    """

    model: str | list[str] | None = None  # Model file, or factory (FILE.py:make); {precision} in its name is replaced by each precision.
    data: str | None = None
    """Data of any kind: a folder of images or arrays, class folders, a video or another file. Default: random inputs, no accuracy."""
    annotations: str | None = None  # Ground truth: COCO JSON, YOLO labels, an index of classes (JSON or text), ...
    reader: str | None = None  # Reader of the ground truth. Default: the one that recognises its format.
    runtime: str | list[str] | None = None
    """Runtime: litert, edgetpu, onnx, openvino, ncnn, executorch, pytorch, tensorrt, hailo, python, llama, server,
    served, replay, a plug-in's, or a class of a file (FILE.py:NAME). Default: by the file's suffix."""
    task: str | None = None  # Task: a name, or a class of a file (FILE.py:NAME). Default: the card's, or what the outputs show.
    backend: str | list[str] | None = None
    """Backend of the runtime. litert: xnnpack, gpu, ...; onnx: cpu, cuda, xnnpack, ...; python: cpu, cuda; edgetpu: usb, ..."""
    options: dict[str, str] | None = None  # Options of a runtime or factory, such as kv_type=q8_0: see docs/reference/.
    threads: Threads | list[Threads] | None = None  # Threads of the runtime.
    subset: Positive | None = None
    """Evaluate on a random subset of N images, the same on every machine. Default: all."""
    seed: Count | None = None  # Seed of subset, inputs, arrivals, and order of the runs.
    scenario: Scenario | None = None
    """How queries arrive: one after the other, several samples each, in batches, at a rate (poisson), as the frames of a camera (steady),
    or of several users (concurrency)."""
    samples_per_query: Annotated[int, msgspec.Meta(ge=1, le=65536)] | None = None  # multi_stream: samples in a query.
    batch: Annotated[int, msgspec.Meta(ge=1, le=65536)] | None = None  # offline: samples in a batch, if the model allows it. Default: 1.
    rate_per_s: Rate | Literal["auto"] | list[Rate] | None = None
    """poisson, steady: queries or frames per second; several for a sweep; auto finds the highest rate that a server holds. Default: of a
    video in steady its own."""
    deadline: str | None = None  # steady: longest time from a frame to its answer, such as 60ms. Default: the time between two frames.
    queue_frames: Annotated[int, msgspec.Meta(ge=1, le=1000)] | None = None
    """steady: frames that wait at most; a new one takes the place of the oldest."""
    concurrency: Users | list[Users] | None = None
    """concurrent: users of a server, each with one query at a time; several for a sweep."""
    slo: str | None = None  # Limits of a request for the goodput: latency=50ms of a served model, of text also ttft=500ms,tpot=50ms.
    mode: ModeName | None = None  # Length of a run. Default: quick (10 s).
    minutes: Minutes | None = None
    """sustained, steady: length of the run in minutes. Default: 30; of steady that of the mode."""
    prompt_tokens: Tokens | list[Tokens] | None = None
    """Language models: exact length of the prompt in tokens; several for a sweep. Default: 512."""
    output_tokens: Tokens | list[Tokens] | None = None
    """Language models: exact number of tokens generated; several for a sweep. Default: 128."""
    prompts: str | None = None
    """Language models: prompts from a file (JSON Lines with prompt or messages, ShareGPT, a text a line), or edgemeter-questions;
    output_tokens is then the most. Default: synthetic."""
    repeats: Positive | None = None
    """Independent processes per case. Default: 3 in rapid and quick, 5 in normal and full, 1 in sustained and with minutes."""
    queries: Positive | None = None  # Smallest number of timed queries. Default: by mode.
    seconds: Seconds | None = None  # Shortest timed part in seconds. Default: by mode.
    idle_seconds: Seconds | None = None
    """Idle before and after the timed part in seconds, if there is a power sensor. Default: by mode."""
    cpus: Annotated[list[Annotated[int, msgspec.Meta(ge=0, le=4095)]], msgspec.Meta(min_length=1)] | None = None
    """Pin the run to these cores. Default: any."""
    start_below_c: float | None = None  # Before each run, wait until all temperatures are below this. Default: no wait.
    cool_down_limit_s: Seconds | None = None  # Longest wait for these temperatures, in seconds.
    accuracy: AccuracyWhen | None = None  # Repeats that measure accuracy.
    reference_accuracy: Annotated[float, msgspec.Meta(gt=0, le=1)] | None = None
    """Accuracy of the fp32 model on this data, 0..1. Default: the model card's."""
    gate: Annotated[float, msgspec.Meta(gt=0, le=1)] | None = None  # Ratio of the reference accuracy below which a run is invalid.
    predictions: str | None = None  # File for the predictions as COCO results, which pycocotools and FiftyOne read; needs COCO annotations.
    agreement: AccuracyWhen | None = None  # Repeats that compare outputs with reference kernels. Default: first; in mode rapid never.
    precision: str | list[str] | None = None  # Name of the precision. Default: the card's, or what the tensors show.
    name: Name | None = None  # Name of the model. Default: the card's, or the file's.
    sha256: Sha256 | None = None  # Refuse the model unless it has this hash.
    role: Role | None = None  # reference: other devices are compared with this one.
    power_mode: str | list[str] | None = None  # Power mode by name or number (nvpmodel), set for the run (as root); several for a sweep.
    governor: str | list[str] | None = None  # CPU governor, set for the run; several for a sweep.
    cpu_max_hz: Hertz | list[Hertz] | None = None  # Highest CPU clock in Hz, set for the run; several for a sweep.
    gpu_max_hz: Hertz | list[Hertz] | None = None  # Highest GPU clock in Hz, set for the run; several for a sweep.
    memory_max_hz: Hertz | list[Hertz] | None = None  # Highest memory clock in Hz, set for the run; several for a sweep.
    together: Name | None = None  # Cases with the same name here run alone, then at the same time.
    estimate_power_w: Annotated[float, msgspec.Meta(gt=0, le=100_000)] | None = None
    """Without a sensor: assumed power at the device's input in W. The energy is labelled estimated and never ranked."""


def is_video(data: str) -> bool:
    """Return whether the name of the data is that of a video, or of the archive (.mp4.zip) in which an order brings one."""
    return not VIDEOS.isdisjoint(Path(data.lower()).suffixes)


def checked_settings(values: Mapping[str, Any]) -> Settings:
    """Return the settings of a case; raises ConfigError, with the choices that there are, if one has a wrong value."""
    if wrong := mistakes(values, Settings):
        raise ConfigError("; ".join(map(str, wrong)))
    return msgspec.convert(dict(values), Settings)
