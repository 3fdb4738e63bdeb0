"""The settings of a case, as a suite's file, options and the API give them."""

from pathlib import Path
from typing import Annotated, Final, Literal

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
# The defaults of a case that a text below names; a test compares the two.
MODE: Final = "quick"
PROMPT_TOKENS, OUTPUT_TOKENS = 512, 128
PRECISION_RATIO = 0.05  # The half width of the interval of a figure.
VIDEOS = frozenset({".mp4", ".m4v", ".mkv", ".mov", ".avi", ".webm", ".mpg", ".mpeg", ".ts"})


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The keys of a `[[case]]` or of `[defaults]`; a list stands for each of its values.

    The texts of the keys are the help of their options and the comments of the sample; see
    `setting_texts`.
    """

    model: str | list[str] | None = None
    """Model file, or factory (FILE.py:make); a list stands for each of them."""
    data: str | None = None
    """Images, arrays, class folders or a video. Default: random inputs, no accuracy."""
    annotations: str | None = None  # Ground truth, such as COCO JSON or YOLO labels.
    runtime: str | list[str] | None = None
    """Runtime, such as litert or onnx, or FILE.py:NAME. Default: by the suffix of the model."""
    task: str | None = None  # Task, or FILE.py:NAME. Default: recognised.
    backend: str | list[str] | None = None
    """Backend of the runtime, such as cpu or xnnpack."""
    options: dict[str, str] | None = None
    """Setting of the runtime or factory, such as kv_type=q8_0."""
    threads: Threads | list[Threads] | None = None  # Threads of the runtime.
    subset: Positive | None = None
    """Use N random images of the data. Default: all."""
    seed: Count | None = None  # Seed of subset, inputs, arrivals and order of runs.
    scenario: Scenario | None = None
    """How queries arrive: one by one, in batches, at random, steadily, or concurrently."""
    batch: Annotated[int, msgspec.Meta(ge=1, le=65536)] | None = None
    """offline: samples in a batch. Default: 1."""
    rate_per_s: Rate | list[Rate] | None = None
    """poisson, steady: queries or frames per second. Default: the video's."""
    deadline: str | None = None
    """steady: time limit of a frame, such as 60ms. Default: until the next frame."""
    concurrency: Users | list[Users] | None = None
    """concurrent: users, each with one query at a time."""
    mode: ModeName | None = None  # Length of a run. Default: quick (10 s).
    prompt_tokens: Tokens | list[Tokens] | None = None
    """Language models: tokens of the prompt. Default: 512."""
    output_tokens: Tokens | list[Tokens] | None = None
    """Language models: tokens to generate. Default: 128."""
    questions: str | None = None
    """Language models: file of questions with answers (JSON Lines), or edgemeter-questions.
    Default: synthetic prompts."""
    precision_ratio: Annotated[float, msgspec.Meta(ge=0.035, le=1)] | None = None
    """Repeat runs until the 95% intervals are within ± this. Default: 5%, or until a comparison is
    decided."""
    time_s: Annotated[float, msgspec.Meta(ge=1, le=86_400)] | None = None
    """Time limit for the runs of a case, in seconds."""
    repeats: Positive | None = None
    """Number of runs per case. Default: as many as the precision needs."""
    seconds: Seconds | None = None
    """Shortest timed part in seconds; in sustained and steady its exact length. Default: by
    mode."""
    idle_seconds: Seconds | None = None
    """Idle time before and after the timed part in seconds, if there is a power sensor. Default: by
    mode."""
    cpus: (
        Annotated[list[Annotated[int, msgspec.Meta(ge=0, le=4095)]], msgspec.Meta(min_length=1)]
        | None
    ) = None
    """Pin the run to these cores. Default: any."""
    predictions: str | None = None
    """Write the predictions to this file as COCO results; needs COCO annotations."""
    name: Name | None = None  # Name of the model. Default: the card's, or the file's.
    sha256: Sha256 | None = None  # Refuse the model unless it has this hash.
    power_mode: str | list[str] | None = None
    """Power mode (nvpmodel) to set for the run, by name or number; needs root."""
    governor: str | list[str] | None = None  # CPU governor to set for the run.
    together: Name | None = None  # Cases with the same name here run alone, then at the same time.


def is_video(data: str) -> bool:
    """Return whether the name of the data is that of a video.

    It may also be the archive (.mp4.zip) in which an order brings one.
    """
    return not VIDEOS.isdisjoint(Path(data.lower()).suffixes)
