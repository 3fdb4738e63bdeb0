"""The settings of a case, as a suite's file, options and the API give them."""

from pathlib import Path
from typing import Annotated, Literal

import msgspec

from edgemeter.agent.base.types import Count, Name, Positive, Sha256

Tokens = Annotated[int, msgspec.Meta(ge=1, le=1 << 20)]
Threads = Annotated[int, msgspec.Meta(ge=1, le=1024)]
Users = Annotated[int, msgspec.Meta(ge=1, le=256)]
Rate = Annotated[float, msgspec.Meta(ge=0.001, le=1_000_000)]
# At most thirty days.
Seconds = Annotated[float, msgspec.Meta(ge=0, le=2_592_000)]
Scenario = Literal["single_stream", "offline", "poisson", "steady", "concurrent"]
# Scenarios in which queries overlap, of a model behind a server.
OVERLAPPING = ("poisson", "concurrent")
ModeName = Literal["rapid", "quick", "normal", "full", "sustained"]
VIDEOS = frozenset({".mp4", ".m4v", ".mkv", ".mov", ".avi", ".webm", ".mpg", ".mpeg", ".ts"})


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The keys of a `[[case]]` or of `[defaults]`; a list stands for each of its values.

    The texts of the keys are the help of their options and the comments of the sample; see `setting_texts`.
    """

    model: str | list[str] | None = None  # Model file, or factory (FILE.py:make); a list stands for each of them.
    data: str | None = None
    """Data of any kind: a folder of images or arrays, class folders, a video or another file. Default: random inputs, no accuracy."""
    annotations: str | None = None  # Ground truth: COCO JSON, YOLO labels, an index of classes (JSON or text), ...
    runtime: str | list[str] | None = None
    """Runtime: litert, edgetpu, onnx, openvino, ncnn, executorch, pytorch, tensorrt, hailo, python, llama, server,
    served, replay, one of a plug-in, or a class of a file (FILE.py:NAME). Default: by the file's suffix."""
    task: str | None = None  # Task: a name, or a class of a file (FILE.py:NAME). Default: the card's, or what the outputs show.
    backend: str | list[str] | None = None
    """Backend of the runtime. litert: xnnpack, gpu, ...; onnx: cpu, cuda, xnnpack, ...; python: cpu, cuda; edgetpu: usb, ..."""
    options: dict[str, str] | None = None  # Options of a runtime or factory, such as kv_type=q8_0: see docs/reference/.
    threads: Threads | list[Threads] | None = None  # Threads of the runtime.
    subset: Positive | None = None
    """Evaluate on a random subset of N images, the same on every machine. Default: all."""
    seed: Count | None = None  # Seed of subset, inputs, arrivals, and order of the runs.
    scenario: Scenario | None = None
    """How queries arrive: one after the other, in batches (offline), at random at a rate (poisson), as the frames of a camera (steady),
    or from several users at once (concurrent)."""
    batch: Annotated[int, msgspec.Meta(ge=1, le=65536)] | None = None  # offline: samples in a batch, if the model allows it. Default: 1.
    rate_per_s: Rate | list[Rate] | None = None
    """poisson, steady: queries or frames per second; several for a sweep. Default: in steady that of the video."""
    deadline: str | None = None  # steady: longest time from a frame to its answer, such as 60ms. Default: the time between two frames.
    concurrency: Users | list[Users] | None = None
    """concurrent: users of a server, each with one query at a time; several for a sweep."""
    mode: ModeName | None = None  # Length of a run. Default: quick (10 s).
    prompt_tokens: Tokens | list[Tokens] | None = None
    """Language models: exact length of the prompt in tokens; several for a sweep. Default: 512."""
    output_tokens: Tokens | list[Tokens] | None = None
    """Language models: exact number of tokens generated; several for a sweep. Default: 128."""
    questions: str | None = None
    """Language models: questions with their right answers from a file (JSON Lines with prompt, and answer, answers or choices), or
    edgemeter-questions; output_tokens is then the most. Default: synthetic prompts."""
    precision_ratio: Annotated[float, msgspec.Meta(ge=0.035, le=1)] | None = None
    """Measure until the 95% intervals of speed and energy over runs are as narrow as ± this. Default: 5%; models that are compared
    are measured until their differences are decided."""
    time_s: Annotated[float, msgspec.Meta(ge=1, le=86_400)] | None = None
    """Longest time for the runs of a case in seconds; there are at least three runs."""
    repeats: Positive | None = None
    """Number of runs per case, each in a process of its own. Default: as many as the precision needs; 1 in sustained."""
    seconds: Seconds | None = None
    """Shortest timed part in seconds; in sustained and steady, its exact length. Default: by mode; 1800 in sustained."""
    idle_seconds: Seconds | None = None
    """Idle before and after the timed part in seconds, if there is a power sensor. Default: by mode."""
    cpus: Annotated[list[Annotated[int, msgspec.Meta(ge=0, le=4095)]], msgspec.Meta(min_length=1)] | None = None
    """Pin the run to these cores. Default: any."""
    predictions: str | None = None  # File for the predictions as COCO results, which pycocotools and FiftyOne read; needs COCO annotations.
    name: Name | None = None  # Name of the model. Default: the card's, or the file's.
    sha256: Sha256 | None = None  # Refuse the model unless it has this hash.
    power_mode: str | list[str] | None = None  # Power mode by name or number (nvpmodel), set for the run (as root); several for a sweep.
    governor: str | list[str] | None = None  # CPU governor, set for the run; several for a sweep.
    together: Name | None = None  # Cases with the same name here run alone, then at the same time.


def is_video(data: str) -> bool:
    """Return whether the name of the data is that of a video, or of the archive (.mp4.zip) in which an order brings one."""
    return not VIDEOS.isdisjoint(Path(data.lower()).suffixes)
