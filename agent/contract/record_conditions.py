"""The parts of the record on the subject, the conditions and the verdict.

The subject is the model, runtime and data set that were measured, and the machine.
"""

from collections.abc import Collection
from pathlib import PurePath
from typing import Annotated, Literal

import msgspec

from edgemeter.agent.base.number_text import count
from edgemeter.agent.base.types import (
    Celsius,
    Count,
    Int64,
    Name,
    Positive,
    QuantityOrZero,
    Sha256,
    SignedQuantity,
)

# `replayed`: played back from a recording by the replay runtime or sensor; true of the recording,
# not of this run.
Provenance = Literal["measured", "replayed", "published"]
StampedBy = Literal["device", "device-later", "collector"]
VerdictState = Literal["ok", "disturbed", "invalid"]


def worst(states: Collection[str]) -> VerdictState:
    """Return the worst of these states; notes do not count."""
    return "invalid" if "invalid" in states else "disturbed" if "disturbed" in states else "ok"


class RecordPart(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A group of fields of the record."""


class Model(RecordPart, frozen=True, kw_only=True):
    """The model that was run."""

    name: Name  # Name shared by all formats and precisions of the model.
    sha256: Sha256  # SHA-256 of the model file, or of all its files.
    file: str  # File name, without folders.
    size_bytes: Count  # Size of the model file in bytes.
    task: str  # Task of the model, e.g. detection or classification.

    def is_called(self, text: str) -> bool:
        """Return whether `text` is the model's name, or its file, with or without a folder."""
        return text == self.name or PurePath(text).name == self.file


# The usual backend of each runtime with several.
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
    """Why the number of threads is unknown, such as for a function's libraries; then `threads` is 1
    without meaning."""
    options: dict[str, str] = {}  # Options the runtime was given.
    facts: dict[str, str] = {}
    """Other facts that the runtime reports about the run, e.g. the clock of an Edge TPU or the
    number of operators on it."""

    @property
    def threads_text(self) -> str:
        return "unknown threads" if self.threads_reason else count(self.threads, "thread")

    @property
    def name_text(self) -> str:
        """The name, with an unusual backend.

        For example `onnx`, `litert gpu`; for `python` the framework: `jax jit,cpu`.
        """
        if self.name == "python" and self.backend != "in-process":
            return f"{self.package} {self.backend}"
        is_usual = not self.threads_reason and self.backend in _USUAL_BACKENDS.get(
            self.name, (self.backend,)
        )
        return self.name if is_usual else f"{self.name} {self.backend}"

    @property
    def setting_text(self) -> str:
        """Name and number of threads, e.g. `onnx 4 threads`.

        Without an unknown number: `python in-process`.
        """
        return self.name_text if self.threads_reason else f"{self.name_text} {self.threads_text}"


class Tensor(RecordPart, frozen=True, kw_only=True):
    """One input of the model."""

    name: str  # Name of the tensor in the model.
    shape: tuple[Int64, ...]  # Shape as bound for the run.
    dtype: str  # Element type, e.g. float32.


class DatasetInfo(RecordPart, frozen=True, kw_only=True):
    """The images and their ground truth."""

    name: str  # Name of the data set's folder.
    sha256: Sha256  # SHA-256 over images and annotations.
    images: Count  # Number of images.


class Environment(RecordPart, frozen=True, kw_only=True):
    """The machine and its software; null where the machine does not report a value."""

    board: str | None  # Board model, e.g. Raspberry Pi 5 Model B Rev 1.0.
    arch: str  # Processor architecture, e.g. aarch64.
    cpu: str | None  # System on chip and processor model.
    cores: Count  # Number of logical cores.
    os: str | None  # Operating system and version.
    kernel: str  # Kernel release.
    firmware: str | None  # Firmware or BIOS version.
    governor: str | None  # CPU frequency governor at the start of the session.
    power_mode: str | None  # Power mode at the start of the session, e.g. nvpmodel's on a Jetson.
    cache_mb: QuantityOrZero | None = None  # Size of the last-level caches in MB.
    agent: str  # Version of edgemeter.
    boot_id: str | None  # The kernel's random id of this boot.
    libraries: dict[str, str] = {}  # Versions of Python and of the libraries that matter to a run.
    attached: tuple[str, ...] = ()  # Accelerators, NVMe drives and HATs attached to the machine.
    virtualisation: str | None = None
    """Container or hypervisor, innermost first: `docker`, `kvm`, `docker in kvm`; null if none is
    visible."""

    @property
    def is_virtual(self) -> bool:
        """Whether it is a virtual machine, whose host may change and has other guests."""
        return self.virtualisation not in {None, "docker", "podman", "kubernetes", "systemd-nspawn"}

    @property
    def session_sd(self) -> float:
        """The assumed standard deviation between sessions of a day, as a ratio."""
        # A list of runs needs no statistics.
        from edgemeter.agent.base.evidence import GUEST_SESSION_SD, SESSION_SD  # noqa: PLC0415

        return GUEST_SESSION_SD if self.is_virtual else SESSION_SD


class Condition(RecordPart, frozen=True, kw_only=True):
    """The state of the machine before, during or after the timed part.

    `during` summarises several readings.
    """

    when: Literal["before", "during", "after"]  # When the state was read.
    temperatures_c: dict[str, Celsius] = {}
    """Temperature by sensor in °C; `during` holds the highest."""
    clock_hz: QuantityOrZero | None = None  # CPU clock in Hz; `during` holds the median.
    clock_max_hz: QuantityOrZero | None = None  # Highest CPU clock allowed, in Hz.
    throttled_now: bool | None = None
    """Whether the processor is throttled; `during`: whether it ever was."""
    throttled_since_boot: bool | None = None  # Whether the processor has been throttled since boot.
    under_voltage_now: bool | None = None
    """Whether the supply voltage is too low; `during`: whether it ever was."""
    under_voltage_since_boot: bool | None = None
    """Whether the supply voltage has been too low since boot."""
    other_load_ratio: SignedQuantity | None = None
    """CPU share, 0..1, of processes that are neither measured nor the agent."""
    steal_ratio: SignedQuantity | None = None
    """CPU share, 0..1, that the hypervisor gave to other virtual machines."""
    swap_used_mb: QuantityOrZero | None = None  # Swap in use, in MB.
    served_load_ratio: SignedQuantity | None = None
    """CPU share, 0..1, of the model's server, which no other share includes; null if it cannot be
    read."""
    busiest_other: dict[str, SignedQuantity] = {}
    """CPU share, 0..1, of the busiest other processes, by name."""
    governor: str | None = None  # CPU frequency governor.
    power_mode: str | None = None  # Power mode, e.g. nvpmodel's on a Jetson.
    throttle_events: dict[str, Count] = {}
    """Throttle counters since boot, by name: `oc1`..`oc3` on a Jetson, `core` on x86."""


class Violation(RecordPart, frozen=True, kw_only=True):
    """A rule of the verdict that a run violates."""

    rule: str  # Name of the rule.
    numbers: dict[str, Annotated[float, msgspec.Meta(ge=-1e30, le=1e30)]] = {}
    """Numbers that show the violation, by field of the record."""
    subject: str | None = None  # Process, sensor, class or part that is concerned.


class Verdict(RecordPart, frozen=True, kw_only=True):
    """Whether the run can be trusted."""

    state: VerdictState
    """`ok`, `disturbed` (something outside the model changed the figures) or `invalid` (do not use
    the figures)."""
    violations: tuple[Violation, ...] = ()  # Violated rules.
    notes: tuple[Violation, ...] = ()  # Notes that cast no doubt on the figures.

    @property
    def rules(self) -> tuple[str, ...]:
        return tuple(violation.rule for violation in self.violations)
