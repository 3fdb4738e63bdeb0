"""Parts of the record: what was measured (model, runtime, data set), on what and under which conditions, and the verdict."""

from collections.abc import Collection
from pathlib import PurePath
from typing import Literal

import msgspec

from edgemeter.agent.base.figures import count
from edgemeter.agent.base.types import Count, Int64, Name, Positive, Sha256

# `replayed`: played back from a recording by the replay runtime or sensor; true of the recording, not of this run.
Provenance = Literal["measured", "replayed", "estimated", "published"]
Role = Literal["device", "reference"]
StampedBy = Literal["device", "device-later", "collector"]
VerdictState = Literal["valid", "suspect", "invalid"]


def worst(states: Collection[str]) -> VerdictState:
    """Return the worst of these states; a note is none."""
    return "invalid" if "invalid" in states else "suspect" if "suspect" in states else "valid"


class RecordPart(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A group of fields of the record."""


class Model(RecordPart, frozen=True, kw_only=True):
    """The model that was run."""

    name: Name  # Name shared by all formats and precisions of the model.
    sha256: Sha256  # SHA-256 of the model file; of all its files where the weights are in a second one.
    file: str  # File name, without folders.
    format: str  # File format, e.g. tflite, onnx, torchscript.
    size_bytes: Count  # Size of the model file in bytes.
    task: str  # Task of the model, e.g. detection or classification.
    family: str  # Decoder family: how the outputs become predictions; ends in ? if the outputs may be those of another.

    def is_called(self, text: str) -> bool:
        """Return whether `text` is the model's name, or the file that was run, with or without a folder."""
        return text == self.name or PurePath(text).name == self.file


# Of each runtime that has several backends the usual one, in older records by its full name too.
_USUAL_BACKENDS = dict.fromkeys(("openvino", "ncnn", "pytorch", "llama"), ("cpu",)) | {
    "onnx": ("cpu", "CPUExecutionProvider"), "litert": ("xnnpack",), "executorch": ("xnnpack",),
}  # fmt: skip


class RuntimeInfo(RecordPart, frozen=True, kw_only=True):
    """The runtime that executed the model."""

    name: str  # Edgemeter's name of the runtime, e.g. litert.
    package: str  # Installed package that did the work.
    version: str  # Version of that package.
    backend: str  # Backend inside the runtime, e.g. xnnpack or cuda.
    threads: Positive  # Number of threads of the runtime.
    threads_reason: str | None = None
    """Why the number of threads is not known, as of a function's libraries; `threads` is 1 then and says nothing."""
    options: dict[str, str] = {}  # Options the runtime was given.
    facts: dict[str, str] = {}
    """Other facts that the runtime reports about the run, e.g. the clock of an Edge TPU or the number of operators on it."""

    @property
    def threads_text(self) -> str:
        """The number of threads in words."""
        return "unknown threads" if self.threads_reason else count(self.threads, "thread")

    @property
    def setting_text(self) -> str:
        """Name and number of threads, e.g. `onnx 4T`, or the backend where that number is not known: `python in-process`.

        A backend of several that is not the runtime's usual one is named: `litert gpu 1T`, as the runtime `python`, which is any
        framework: `jax jit,cpu 1T`.
        """
        if self.name == "python" and self.backend != "in-process":
            return f"{self.package} {self.backend}{'' if self.threads_reason else f' {self.threads}T'}"
        backend = "" if self.backend in _USUAL_BACKENDS.get(self.name, (self.backend,)) else f" {self.backend}"
        return f"{self.name} {self.backend}" if self.threads_reason else f"{self.name}{backend} {self.threads}T"


class Tensor(RecordPart, frozen=True, kw_only=True):
    """One input or output of the model."""

    name: str  # Name of the tensor in the model.
    shape: tuple[Int64, ...]  # Shape as bound for the run.
    dtype: str  # Element type, e.g. float32.
    scale: float | None = None  # Quantisation scale; null if the tensor is not quantised.
    zero_point: Int64 | None = None  # Quantisation zero point; null if the tensor is not quantised.


class Subset(RecordPart, frozen=True, kw_only=True):
    """The part of the data set that was used; the same images on every machine."""

    images: Count  # Number of images used.
    drawn_from: Count  # Number of images in the whole data set.
    seed: Int64  # Seed of the selection.
    method: str  # How the images are selected.


class DatasetInfo(RecordPart, frozen=True, kw_only=True):
    """The images and their ground truth."""

    name: str  # Name of the data set: its folder's.
    sha256: Sha256  # SHA-256 over images and annotations.
    images: Count  # Number of images.
    annotated: bool  # Whether there is ground truth.
    subset: Subset | None = None  # The subset that was drawn; null if all images were used.
    turned_by_exif: Count | None = None
    """Images that their EXIF orientation turned or mirrored; null, with the three that follow, if not counted."""
    alpha_dropped: Count | None = None  # Images with an alpha channel, which was left out.
    cmyk_converted: Count | None = None  # CMYK images, which became RGB without a colour profile.
    reduced_to_8_bit: Count | None = None  # Images of 16 bits a channel, of which the upper 8 were used.


class Environment(RecordPart, frozen=True, kw_only=True):
    """The machine and its software; null where the machine does not report a value."""

    board: str | None  # Board model, e.g. Raspberry Pi 5 Model B Rev 1.0.
    soc: str | None  # System on chip.
    arch: str  # Processor architecture, e.g. aarch64.
    cpu: str | None  # Processor model.
    cores: Count  # Number of logical cores.
    os: str | None  # Operating system and version.
    kernel: str  # Kernel release.
    firmware: str | None  # Firmware or BIOS version.
    governor: str | None  # CPU frequency governor at the start of the session.
    power_mode: str | None  # Power mode at the start of the session, e.g. nvpmodel's on a Jetson.
    cache_mb: float | None = None  # Last level of the processor's caches, all of it, in MB.
    memory_mb: float | None  # Total memory in MB.
    swap_used_mb: float | None  # Swap in use at the start of the session, in MB.
    python: str  # Python version.
    agent: str  # Version of edgemeter.
    boot_id: str | None  # The kernel's random id of this boot.
    libraries: dict[str, str] = {}  # Installed libraries that matter to a run, with their versions.
    attached: tuple[str, ...] = ()  # Accelerators, NVMe drives and HATs attached to the machine.
    virtualisation: str | None = None
    """Container or hypervisor, innermost first: `docker`, `kvm`, `docker in kvm`; null if none is visible."""


class OtherProcess(RecordPart, frozen=True, kw_only=True):
    """The processes of one name that were not measured."""

    name: str  # The kernel's short name of the processes.
    pid: Count  # Process id of the busiest one.
    load_ratio: float  # Their share of the CPU time of all cores, 0..1.
    count: Positive = 1  # Number of processes of that name.


class Condition(RecordPart, frozen=True, kw_only=True):
    """The state of the machine before, during or after the timed part; `during` summarises several readings."""

    when: Literal["before", "during", "after"]  # When the state was read.
    temperatures_c: dict[str, float] = {}  # Temperature by sensor in °C; `during` holds the highest.
    clock_hz: float | None = None  # CPU clock in Hz; `during` holds the median.
    clock_max_hz: float | None = None  # Highest CPU clock allowed, in Hz.
    throttled_now: bool | None = None  # Whether the processor is throttled; `during`: whether it ever was.
    throttled_since_boot: bool | None = None  # Whether the processor has been throttled since boot.
    under_voltage_now: bool | None = None  # Whether the supply voltage is too low; `during`: whether it ever was.
    under_voltage_since_boot: bool | None = None  # Whether the supply voltage has been too low since boot.
    other_load_ratio: float | None = None  # CPU share, 0..1, of processes that are neither measured nor the agent, over `load_window_ms`.
    steal_ratio: float | None = None  # CPU share, 0..1, that the hypervisor gave to other virtual machines, over `load_window_ms`.
    swap_used_mb: float | None = None  # Swap in use, in MB.
    load_window_ms: float | None = None  # Window of the load figures in ms; it ends with the timed part.
    agent_load_ratio: float | None = None  # CPU share, 0..1, of the agent itself, over `load_window_ms`.
    served_load_ratio: float | None = None  # CPU share, 0..1, of the model's server, in no other share; null where it is not seen.
    busiest_other: OtherProcess | None = None  # The busiest processes that were not measured.
    memory_available_mb: float | None = None  # Available memory in MB; `during` holds the lowest.
    governor: str | None = None  # CPU frequency governor.
    power_mode: str | None = None  # Power mode, e.g. nvpmodel's on a Jetson.
    gpu_clock_hz: float | None = None  # GPU clock in Hz.
    gpu_clock_max_hz: float | None = None  # Highest GPU clock allowed, in Hz.
    temperature_limits_c: dict[str, float] = {}
    """Temperature in °C at which throttling or shutdown begins, by the names of `temperatures_c`."""
    throttle_flags: Count | None = None  # The throttle flags of a Raspberry Pi's firmware: bits 0..3 now, bits 16..19 since boot.
    throttle_events: dict[str, Count] = {}  # Throttle counters since boot, by name: `oc1`..`oc3` on a Jetson, `core` on x86.
    clock_synchronised: bool | None = None  # Whether the wall clock is synchronised.
    clock_offset_ms: float | None = None  # Offset in ms that the kernel still has to correct.
    clock_error_ms: float | None = None  # The kernel's bound on the error of the wall clock, in ms.
    attached: tuple[str, ...] = ()  # Accelerators attached to the machine.


class Scheduling(RecordPart, frozen=True, kw_only=True):
    """How the kernel scheduled the measured process, all its threads together, while queries were timed."""

    window_ms: float  # Length of the timed part in ms.
    ran_ms: float | None = None  # CPU time in ms.
    waited_ms: float | None = None  # Time in ms in which a thread that did not end was ready to run and no core was free.
    preemptions: Count | None = None  # Number of involuntary context switches.
    cores: Positive = 1  # Number of cores the process may use.


class Sandbox(RecordPart, frozen=True, kw_only=True):
    """The limits that the kernel set to the measured process, before it opened the model."""

    landlock_abi: Count | None  # Version of Landlock that limited files, TCP ports and signals; null where the kernel has none.
    mounts: bool = False  # Whether, for want of Landlock, a root directory of its own limited files, in namespaces of users and mounts.
    seccomp: bool  # Whether a filter refused other processes, sockets and what else no model needs.
    missing: tuple[str, ...] = ()  # What could not be set up on this kernel, and what a model could do for that.


class Verdict(RecordPart, frozen=True, kw_only=True):
    """Whether the run can be trusted."""

    state: VerdictState  # valid; suspect: a rule is violated that makes the figures doubtful; invalid: do not use the figures.
    reasons: tuple[str, ...] = ()  # Violated rules, each as `rule: evidence`.
    notes: tuple[str, ...] = ()  # Observations worth knowing that do not lower the verdict, each as `rule: evidence`.

    @property
    def rules(self) -> tuple[str, ...]:
        """Return the names of the violated rules, each once."""
        return tuple(dict.fromkeys(map(rule_of, self.reasons)))


def rule_of(reason: str) -> str:
    """Return the name of the rule of a reason, `rule: evidence`."""
    return reason.partition(":")[0]
