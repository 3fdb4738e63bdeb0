"""Writes a model in one format from the file below it, by the converter that makes it, with the facts on how for its card."""

import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from edgemeter.agent import runtimes
from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.progress import Tell
from edgemeter.agent.runtimes import Array
from edgemeter.models.convert import formats
from edgemeter.models.convert.compilers import EDGETPU_COMPILER, TRTEXEC, build_engine, compile_for_edgetpu
from edgemeter.models.convert.conversion_report import ConversionRequest
from edgemeter.models.convert.converter_output import converter_errors, quiet
from edgemeter.models.convert.float_nodes import float_facts, litert_nodes, onnx_nodes
from edgemeter.models.convert.formats import ConversionFacts, ModelFormat
from edgemeter.models.convert.litert_quantise import litert_fp16, litert_int8, litert_int8_dynamic
from edgemeter.models.convert.onnx_quantise import Int8Recipe, OnnxInt8, onnx_fp16, onnx_int8_dynamic
from edgemeter.models.convert.source import CalibrationImages

# The packages that write a format; the card holds their versions.
_PACKAGES = {
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


def _from_torch(step: ModelFormat, base: Path, target: Path, shape: tuple[int, ...]) -> None:
    from edgemeter.models.convert import torch_program  # noqa: PLC0415 - imports PyTorch

    program = torch_program.load_program(base, shape)
    if step.name == "onnx-fp32":
        torch_program.to_onnx(program.exported, program.example, target, program.outputs)
    else:
        torch_program.to_litert(program.module, program.example, target)


def _with(packages: Sequence[str]) -> str:
    return ", ".join(f"{package} {_version(package)}" for package in packages)


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


class FormatWriter:
    """Writes files of one request; int8 ranges are measured on `ranges` (None: there are no calibration images)."""

    def __init__(self, request: ConversionRequest, ranges: CalibrationImages | None, report: Tell) -> None:
        self._request, self._calibration, self._report = request, ranges, report

    def write(self, step: ModelFormat, base: Path, target: Path) -> ConversionFacts:
        """Write `target` in the format `step`, which has no recipe, from the file `base`; return the facts for its card.

        Raises:
            UnavailableError: a converter is not installed.
            ConfigError: the converter refuses the model, or calibration images are missing.
        """
        if step.program == EDGETPU_COMPILER:
            coverage = compile_for_edgetpu(base, target)
            if coverage.facts.get("edgetpu_operations") == 0:
                raise ConfigError(
                    f"no operation of {base.name!r} runs on the Edge TPU: {coverage.in_words}; convert it to int8 with builtin operators"
                )
            unmapped = {"left_on_cpu": "; ".join(coverage.on_cpu)} if coverage.on_cpu else {}
            return {**coverage.facts, "coverage": coverage.in_words.partition(" (")[0], **unmapped}
        if step.program == TRTEXEC:
            return build_engine(base, target, step.precision)
        with self._converting(step) as packages:
            if step.base == formats.TORCH:
                _from_torch(step, base, target, tuple(self._request.source.shape()))
                return {"with": packages}
            return {"with": packages, **self._quantised(step, base, target)}

    def _quantised(self, step: ModelFormat, base: Path, target: Path) -> ConversionFacts:
        keep = self._request.keep
        if step.name == "onnx-fp16":
            onnx_fp16(base, target, keep)
        elif step.name == "onnx-int8-dynamic":
            onnx_int8_dynamic(base, target, keep)
            return float_facts(list(onnx_nodes(target)))
        elif step.name == "litert-fp16":
            litert_fp16(base, target, keep)
        elif step.name == "litert-int8-dynamic":
            litert_int8_dynamic(base, target, keep)
            return float_facts(list(litert_nodes(target)))
        else:
            inputs, how = self._ranges(step)
            litert_int8(base, target, inputs(), keep)
            return {**how, "settings": "weights per channel, ranges min-max", **float_facts(list(litert_nodes(target)))}
        return {}

    @contextmanager
    def onnx_int8(self, step: ModelFormat, base: Path) -> Iterator[OnnxInt8]:
        """Yield what writes the file `base` as int8 by one recipe after the other."""
        inputs = self._ranges(step)[0]
        with tempfile.TemporaryDirectory(prefix="edgemeter-") as folder:
            with self._converting(step):
                quantiser = OnnxInt8(base, Path(folder), inputs, self._request.keep, symmetric=step.name == "onnx-int8-symmetric")
            yield quantiser

    def write_onnx_int8(self, step: ModelFormat, quantiser: OnnxInt8, target: Path, recipe: Int8Recipe) -> ConversionFacts:
        """Write `target` by this recipe; return the facts for its card."""
        with self._converting(step) as packages:
            quantiser.write(target, recipe)
            float_nodes = float_facts(list(onnx_nodes(target)))
        kinds = "all signed, zero points 0, biases float" if step.name == "onnx-int8-symmetric" else "activations uint8"
        settings = f"QDQ, weights per channel, {kinds}, ranges {recipe.in_words}; input and outputs float32"
        return {"with": packages, **self._ranges(step)[1], "settings": settings, **float_nodes}

    @contextmanager
    def _converting(self, step: ModelFormat) -> Iterator[str]:
        """Yield the packages that write the format, with versions; their output is swallowed, their errors become ours."""
        kind = step.base if step.base == formats.TORCH else step.runtime
        packages = _with(_PACKAGES[step.name if kind == formats.TORCH else kind])
        task = f"converting {self._request.source.path.name!r} to {step.name} ({packages})"
        with quiet(), converter_errors(task, _ADVICE[kind]):
            yield packages

    def _ranges(self, step: ModelFormat) -> tuple[Callable[[], Iterable[Array]], ConversionFacts]:
        """Return what returns the calibration inputs, and the facts on them for the card."""
        calibration, source = self._calibration, self._request.source
        if calibration is None:
            raise ConfigError(
                f"{step.name} needs images to measure ranges on: give --calibration FOLDER with a few hundred images like those that the "
                "model will see"
            )
        data = calibration.data
        from_torch = source.about is not None and step.runtime == "litert" and source.form == formats.TORCH
        batch = runtimes.fixed_batch(source.loaded)
        is_channels_last = from_torch or calibration.about.image.layout == "NHWC"
        return lambda: calibration.inputs(batch=batch, is_channels_last=is_channels_last, report=self._report), {
            "calibration": data.name,
            "calibration_images": len(data.items),
            "calibration_sha256": data.sha256,
        }
