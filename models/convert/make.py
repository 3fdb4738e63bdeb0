"""Making one form of a model from the form before it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from edgemeter.agent.dataset import Dataset
from edgemeter.agent.errors import ConfigError
from edgemeter.agent.runtimes import Array
from edgemeter.models.convert import edgetpu_compiler, failures, formats, litert_files, onnx_files, trtexec
from edgemeter.models.convert.calibration import Calibration
from edgemeter.models.convert.formats import Format
from edgemeter.models.convert.source import Source
from edgemeter.models.progress import Tell
from edgemeter.models.quiet import quiet

Facts = Mapping[str, str | int | float]

# Which packages write a format: their versions stand in the card.
_PACKAGES = {
    "torchscript": ("torch",),
    "exported": ("torch",),
    "onnx-fp32": ("torch", "onnxscript", "onnx"),
    "litert-fp32": ("torch", "litert-torch"),
    "onnx": ("onnx", "onnxruntime"),
    "litert": ("ai-edge-quantizer", "ai-edge-litert"),
}
_ADVICE = {
    formats.TORCH: "export the model again with torch.export.save (.pt2), or with operators that the converter knows",
    "onnx": "export the ONNX file again, or leave this format out",
    "litert": "convert the LiteRT file again, or leave this format out",
}


@dataclass(frozen=True, slots=True)
class Workshop:
    """What conversions of one source share: the source, the calibration pictures and what is to stay in float."""

    source: Source
    calibration: Calibration | None
    pictures: Dataset | None
    keep: tuple[str, ...]
    tell: Tell

    def make(self, step: Format, base: Path, target: Path) -> Facts:
        """Write `target` in the form `step` from the file `base`, and return how, for its card.

        Raises:
            UnavailableError: a converter is not installed.
            ConfigError: the converter refuses the model, or what it needs was not given.
        """
        if step.program == edgetpu_compiler.PROGRAM:
            coverage = edgetpu_compiler.compile_file(base, target)
            if coverage.facts.get("edgetpu_operations") == 0:
                message = (
                    f"no operation of {base.name!r} runs on the Edge TPU: {coverage.in_words}; convert it to int8 with builtin operators"
                )
                raise ConfigError(message)
            left = {"left_on_cpu": "; ".join(coverage.on_cpu)} if coverage.on_cpu else {}
            return {**coverage.facts, "coverage": coverage.in_words.partition(" (")[0], **left}
        if step.program == trtexec.PROGRAM:
            return trtexec.build(base, target, step.precision)
        kind = step.base if step.base == formats.TORCH else step.runtime
        packages = _with(_PACKAGES[step.name if kind == formats.TORCH else kind])
        with quiet(), failures.named(f"converting {self.source.path.name!r} to {step.name} ({packages})", _ADVICE[kind]):
            if step.base == formats.TORCH:
                _from_torch(step, base, target, tuple(self.source.shape()))
                return {"with": packages}
            return {"with": packages, **self._quantised(step, base, target)}

    def _quantised(self, step: Format, base: Path, target: Path) -> Facts:
        if step.name == "onnx-fp16":
            return _kept(onnx_files.fp16(base, target, self.keep))
        if step.name == "onnx-int8-dynamic":
            return _kept(onnx_files.int8_dynamic(base, target, self.keep))
        if step.name in ("litert-fp16", "litert-int8-dynamic"):
            (litert_files.fp16 if step.name == "litert-fp16" else litert_files.int8_dynamic)(base, target, self.keep)
            return _asked(self.keep)
        inputs, how = self._ranges(step)
        if step.runtime == "litert":
            kept = litert_files.int8(base, target, inputs, self.keep)
            which = "int8 but for what is kept in float" if kept or self.keep else "every tensor int8"
            return {**how, "settings": f"{which}, weights per channel, ranges min-max", **_kept([*self.keep, *kept])}
        symmetric = step.name == "onnx-int8-symmetric"
        kept = onnx_files.int8(base, target, inputs, self.keep, symmetric=symmetric)
        zero = ", zero points 0, biases float" if symmetric else ""
        return {**how, "settings": f"QDQ, signed, weights per channel, ranges min-max{zero}; input and outputs float32", **_kept(kept)}

    def _ranges(self, step: Format) -> tuple[Iterable[Array], Facts]:
        """Return the calibration inputs and how they are named in the card."""
        if self.calibration is None:
            message = (
                f"{step.name} needs pictures to measure ranges on: give --calibration FOLDER, some hundred photographs like those that the "
                "model will see, other ones than it is scored on"
            )
            raise ConfigError(message)
        data = self.calibration.data
        last = self.source.about is not None and (step.runtime == "litert") and self.source.form == formats.TORCH
        last = last or self.calibration.about.input.layout == "NHWC"
        flattering = self.calibration.also_in(self.pictures) if self.pictures else 0
        return self.calibration.inputs(is_channels_last=last, tell=self.tell), {
            "calibration": data.name,
            "calibration_images": len(data.files),
            "calibration_sha256": data.sha256,
            **({"calibration_images_also_scored": flattering} if flattering else {}),
        }


def _from_torch(step: Format, base: Path, target: Path, shape: tuple[int, ...]) -> None:
    from edgemeter.models import export  # noqa: PLC0415 - imports PyTorch
    from edgemeter.models.convert import program as torch_program  # noqa: PLC0415 - imports PyTorch

    program = torch_program.load(base, shape)
    if step.name == "torchscript":
        export.to_torchscript(program.module, program.example, target)
    elif step.name == "exported":
        export.to_exported(program.exported, target)
    elif step.name == "onnx-fp32":
        export.to_onnx(program.exported, program.example, target, program.outputs)
    else:
        export.to_litert(program.module, program.example, target)


def _kept(names: Sequence[str]) -> Facts:
    """Return what stayed in float: few are named, many counted."""
    if not names:
        return {}
    some = ", ".join(names[:8])
    return {"kept_in_float": some if len(names) <= 8 else f"{some} and {len(names) - 8} more"}


def _asked(keep: Sequence[str]) -> Facts:
    return {"kept_in_float": f"operations matching {', '.join(keep)}"} if keep else {}


def _with(packages: Sequence[str]) -> str:
    return ", ".join(f"{package} {_version(package)}" for package in packages)


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
