"""Converting one model to several formats: each is made, compared with the source, and written with a card.

A ruined file is kept under another name, `NAME_int8.RUINED.tflite`, so that nothing uses it by mistake; the file of an earlier conversion
under the requested name is removed.
"""

import math
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from edgemeter.agent import runtimes
from edgemeter.agent.base.durable_file import replacing
from edgemeter.agent.base.errors import ConfigError, EdgemeterError, UnavailableError
from edgemeter.agent.base.progress import Tell
from edgemeter.agent.contract import model_file
from edgemeter.agent.contract.model_card import Card, card_path
from edgemeter.agent.contract.suite import runtime_for
from edgemeter.agent.runtimes import Array
from edgemeter.models.convert import formats, parity
from edgemeter.models.convert.compilers import EDGETPU_COMPILER, TRTEXEC, build_engine, compile_for_edgetpu
from edgemeter.models.convert.conversion_report import Conversion, ConversionOutcome, ConversionRequest, input_card, plain_card, write_card
from edgemeter.models.convert.converter_output import converter_errors, quiet
from edgemeter.models.convert.formats import ConversionFacts, ModelFormat
from edgemeter.models.convert.litert_quantise import litert_fp16, litert_int8, litert_int8_dynamic
from edgemeter.models.convert.onnx_quantise import STRETCHES, Int8Recipe, OnnxInt8, RangeMethod, onnx_fp16, onnx_int8_dynamic
from edgemeter.models.convert.parity import Parity, ParityInputs, ParityReference, image_inputs, noise_inputs

ALL_FORMATS = "all"
# The packages that write a format; the card holds their versions.
_PACKAGES = {
    "torchscript": ("torch",),
    "exported": ("torch",),
    "onnx-fp32": ("torch", "onnxscript", "onnx"),
    "litert-fp32": ("torch", "litert-torch"),
    "executorch-fp32": ("torch", "executorch"),
    "executorch-int8": ("torch", "torchao", "executorch"),
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
    if step.name == "torchscript":
        torch_program.to_torchscript(program.module, program.example, target)
    elif step.name == "exported":
        torch_program.to_exported(program.exported, target)
    elif step.name == "onnx-fp32":
        torch_program.to_onnx(program.exported, program.example, target, program.outputs)
    else:
        torch_program.to_litert(program.module, program.example, target)


def _kept_facts(names: Sequence[str]) -> ConversionFacts:
    """Return the operations kept in float: the first are named, the rest counted."""
    if not names:
        return {}
    first_names = ", ".join(names[:8])
    return {"kept_in_float": first_names if len(names) <= 8 else f"{first_names} and {len(names) - 8} more"}


def _with(packages: Sequence[str]) -> str:
    return ", ".join(f"{package} {_version(package)}" for package in packages)


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def convert(request: ConversionRequest, report: Tell) -> ConversionOutcome:
    """Make every requested format; one that fails does not stop the others.

    Raises:
        ConfigError: a format is unknown, cannot be made from this source, or `out` cannot be written.
        EdgemeterError: the source itself cannot be run on the images.
    """
    outcome = ConversionOutcome()
    routes = _routes(request, outcome)
    try:
        request.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"cannot write to {str(request.out)!r}: {error.strerror}; choose another folder with --output") from error
    with tempfile.TemporaryDirectory(prefix="edgemeter-") as name:
        folder, outputs, source = Path(name), Path(name) / "outputs", request.source.path
        outputs.mkdir()
        expected = parity.reference(source, runtime_for(source), _inputs(request, None), outputs, report)
        converter = _Converter(request, expected, folder, report)
        for route in routes:
            goal = route[-1]
            try:
                outcome.written.append(converter.convert(route))
            except EdgemeterError as error:
                # A format may need more than the extra `convert`: another program or extra.
                may_lack = goal.program is not None or goal.extra != "convert"
                if isinstance(error, UnavailableError) and ALL_FORMATS in request.goals and may_lack:
                    outcome.left_out.append(f"{goal.name}: {error}")
                else:
                    outcome.errors.append(error)
    return outcome


def _routes(request: ConversionRequest, outcome: ConversionOutcome) -> list[list[ModelFormat]]:
    """Return the steps to each requested format, in the order of the table."""
    form, is_all = request.source.form, ALL_FORMATS in request.goals
    requested = set(formats.FORMATS) if is_all else {formats.find_format(goal).name for goal in request.goals}
    routes = {name: formats.steps_to(form, name) for name in formats.FORMATS if name in requested}
    impossible = [name for name, route in routes.items() if route is None and name != form]
    if impossible and not is_all:
        raise ConfigError(f"cannot convert {request.source.path.name!r} ({form}) to {', '.join(impossible)}: {_advice(form)}")
    possible = [route for route in routes.values() if route is not None]
    if request.calibration is None and is_all:
        lacking = [route for route in possible if any(step.is_calibrated for step in route)]
        outcome.left_out += [f"{route[-1].name}: needs --calibration FOLDER" for route in lacking]
        possible = [route for route in possible if route not in lacking]
    if not possible:
        raise ConfigError(f"nothing can be made from {request.source.path.name!r} ({form}): {_advice(form)}")
    return possible


def _advice(form: str) -> str:
    if form == formats.TORCH:
        return "choose another format"
    if form.endswith("-fp32"):
        return "give the PyTorch model that it was exported from (.pt2 or TorchScript)"
    return "it is not an fp32 file; give the fp32 file that it was made from"


def _inputs(request: ConversionRequest, about: Card | None) -> ParityInputs:
    """Return the images for a file with this card (None: the source's), or noise if there are none or the model is unknown."""
    source = request.source
    if source.about is not None and request.pictures is not None:
        return image_inputs(about or source.about, request.pictures)
    return noise_inputs(source.loaded, source.shape() if len(source.loaded.inputs) <= 1 else ())


class _Converter:
    """Makes formats one after the other; a format that several are made from is made once."""

    def __init__(self, request: ConversionRequest, expected: ParityReference, folder: Path, report: Tell) -> None:
        self._request, self._expected, self._folder, self._report = request, expected, folder, report
        self._files: dict[str, tuple[Path, ConversionFacts]] = {request.source.form: (request.source.path, {})}
        self._failed: dict[str, EdgemeterError] = {}

    def convert(self, route: Sequence[ModelFormat]) -> Conversion:
        """Make the last format of the route, compare it, and write it."""
        for step in route:
            self._make(step)
        goal = route[-1]
        path, facts = self._files[goal.name]
        self._report(f"comparing {goal.name}", 0, 1)
        result, stand_in = self._compare(goal, path)
        if result.verdict.state == "ruined" and goal.is_calibrated and goal.runtime == "onnx":
            path, facts, result = self._tried_again(goal, path, facts, result)
        return self._write(goal, path, facts, result, stand_in)

    def _tried_again(
        self, goal: ModelFormat, path: Path, first_facts: ConversionFacts, result: Parity
    ) -> tuple[Path, ConversionFacts, Parity]:
        """Return the first file that is not ruined, of other ranges or with what int8 harms most in float; else the best one."""
        base, before = self._files[goal.base]
        best = (path, first_facts, result)
        methods: dict[tuple[float, ...], RangeMethod] = {_score(result): "min-max"}
        tried = [f"min-max: {result.verdict.reason}"]
        with self._onnx_int8(goal, base) as quantiser:
            for recipe in _recipes(quantiser, methods):
                self._report(f"trying {goal.name}, {recipe.in_words}", 0, 1)
                target = self._folder / f"{len(tried)}-{path.name}"
                try:
                    facts = _joined(before, {"with": first_facts["with"], **self._int8_written(goal, quantiser, target, recipe)})
                    retried = self._parity(goal, target, goal.precision)
                except EdgemeterError as error:
                    tried.append(f"{recipe.in_words}: {error}")
                    continue
                tried.append(f"{recipe.in_words}: {retried.verdict.reason}")
                if not recipe.blamed:
                    methods.setdefault(_score(retried), recipe.ranges)
                if _score(retried) > _score(best[2]):
                    best = (target, facts, retried)
                if retried.verdict.state != "ruined":
                    break
        return best[0], {**best[1], "tried": "; ".join(tried)}, best[2]

    def _make(self, step: ModelFormat) -> None:
        if step.name in self._files:
            return
        if step.name in self._failed:
            raise self._failed[step.name]
        base, before = self._files[step.base]
        # Converters derive names in the file from the input's name.
        target = self._folder / f"{self._request.source.name}{step.ending}"
        self._report(f"making {step.name}", 0, 1)
        try:
            facts = self._written(step, base, target)
        except EdgemeterError as error:
            self._failed[step.name] = error
            raise
        self._files[step.name] = (target, _joined(before, facts))

    def _compare(self, goal: ModelFormat, path: Path) -> tuple[Parity, str | None]:
        """Return the parity of the file; if it cannot run here, that of the file it was compiled from, with a note on it."""
        try:
            return self._parity(goal, path, goal.precision), None
        except UnavailableError as error:
            if goal.program is None:
                raise
            base = formats.FORMATS.get(goal.base, goal)
            stand_in = f"{base.name}, from which it was compiled: it does not run here ({error})"
            return self._parity(base, self._files[goal.base][0], base.precision), stand_in

    def _parity(self, form: ModelFormat, path: Path, precision: str) -> Parity:
        if form.runtime not in runtimes.names():
            raise UnavailableError(f"the runtime {form.runtime!r} is not available here")
        source = self._request.source
        about = None if source.about is None else input_card(source.about, form, source.form)
        return parity.compare(self._expected, path, form.runtime, _inputs(self._request, about), precision, self._report)

    def _write(self, goal: ModelFormat, made_at: Path, facts: ConversionFacts, result: Parity, stand_in: str | None) -> Conversion:
        request = self._request
        target = request.out / f"{request.source.name}{goal.ending}"
        if target.exists() and target.samefile(request.source.path):
            raise ConfigError(f"{str(target)!r} is the source itself: choose another folder with --output")
        ruined = target.with_name(f"{target.stem}.RUINED{target.suffix}")
        path, stale = (ruined, target) if result.verdict.state == "ruined" else (target, ruined)
        digest = model_file.sha256(made_at)
        conversion = Conversion(goal, path, facts, result, stand_in, digest, made_at.stat().st_size)
        try:
            with replacing(path, 0o644) as file, made_at.open("rb") as content:
                shutil.copyfileobj(content, file)
            write_card(conversion, request)
            for old in (stale, card_path(stale), plain_card(stale)):
                old.unlink(missing_ok=True)
        except OSError as error:
            raise ConfigError(f"cannot write {str(path)!r}: {error.strerror}; choose another folder with --output") from error
        return conversion

    def _written(self, step: ModelFormat, base: Path, target: Path) -> ConversionFacts:
        """Write `target` in the format `step` from the file `base`; return the facts for its card.

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
        kind = step.base if step.base == formats.TORCH else step.runtime
        packages = _with(_PACKAGES[step.name if kind == formats.TORCH else kind])
        task = f"converting {self._request.source.path.name!r} to {step.name} ({packages})"
        with quiet(), converter_errors(task, _ADVICE[kind], step.extra):
            if step.runtime == "executorch":
                return {"with": packages, **self._executorch(step, base, target)}
            if step.base == formats.TORCH:
                _from_torch(step, base, target, tuple(self._request.source.shape()))
                return {"with": packages}
            return {"with": packages, **self._quantised(step, base, target)}

    def _executorch(self, step: ModelFormat, base: Path, target: Path) -> ConversionFacts:
        from edgemeter.models.convert import executorch_program, torch_program  # noqa: PLC0415 - import PyTorch

        if self._request.keep:
            raise ConfigError(f"{step.name} knows no --exclude: leave it out, or choose an ONNX or LiteRT format")
        program = torch_program.load_program(base, tuple(self._request.source.shape()))
        if not step.is_calibrated:
            return executorch_program.to_executorch(program, target)
        inputs, how = self._ranges(step)
        return {**how, **executorch_program.to_executorch_int8(program, inputs(), target)}

    def _quantised(self, step: ModelFormat, base: Path, target: Path) -> ConversionFacts:
        keep = self._request.keep
        if step.name in ("onnx-fp16", "onnx-int8-dynamic"):
            return _kept_facts((onnx_fp16 if step.name == "onnx-fp16" else onnx_int8_dynamic)(base, target, keep))
        if step.name in ("litert-fp16", "litert-int8-dynamic"):
            (litert_fp16 if step.name == "litert-fp16" else litert_int8_dynamic)(base, target, keep)
            return {"kept_in_float": f"operations matching {', '.join(keep)}"} if keep else {}
        if step.runtime == "litert":
            inputs, how = self._ranges(step)
            float_kinds = litert_int8(base, target, inputs(), keep)
            which = "int8 except the operations kept in float" if float_kinds or keep else "every tensor int8"
            return {**how, "settings": f"{which}, weights per channel, ranges min-max", **_kept_facts([*keep, *float_kinds])}
        with self._onnx_int8(step, base) as quantiser:
            return self._int8_written(step, quantiser, target, Int8Recipe())

    @contextmanager
    def _onnx_int8(self, step: ModelFormat, base: Path) -> Iterator[OnnxInt8]:
        """Yield what writes the file `base` as int8 by one recipe after the other."""
        with tempfile.TemporaryDirectory(prefix="edgemeter-") as folder:
            with quiet():
                quantiser = OnnxInt8(
                    base, Path(folder), self._ranges(step)[0], self._request.keep, symmetric=step.name == "onnx-int8-symmetric"
                )
            yield quantiser

    def _int8_written(self, step: ModelFormat, quantiser: OnnxInt8, target: Path, recipe: Int8Recipe) -> ConversionFacts:
        """Write `target` by this recipe; return the facts for its card."""
        packages = _with(_PACKAGES[step.runtime])
        with quiet(), converter_errors(f"converting {self._request.source.path.name!r} to {step.name} ({packages})", _ADVICE[step.runtime]):
            float_nodes = quantiser.write(target, recipe)
        zero = ", zero points 0, biases float" if step.name == "onnx-int8-symmetric" else ""
        return {
            **self._ranges(step)[1],
            "settings": f"QDQ, signed, weights per channel, ranges {recipe.in_words}{zero}; input and outputs float32",
            **_kept_facts(float_nodes),
        }

    def _ranges(self, step: ModelFormat) -> tuple[Callable[[], Iterable[Array]], ConversionFacts]:
        """Return what returns the calibration inputs, and the facts on them for the card."""
        calibration, source = self._request.calibration, self._request.source
        if calibration is None:
            raise ConfigError(
                f"{step.name} needs images to measure ranges on: give --calibration FOLDER with a few hundred images like those that the "
                "model will see, but not those that it is scored on"
            )
        data = calibration.data
        from_torch = source.about is not None and step.runtime == "litert" and source.form == formats.TORCH
        batch = runtimes.fixed_batch(source.loaded)
        is_channels_last = from_torch or calibration.about.image.layout == "NHWC"
        # By their bytes: int8 looks better than it is on images that it was calibrated on.
        scored = {item.sha256() for item in self._request.pictures.items} if self._request.pictures else set()
        scored_too = sum(item.sha256() in scored for item in data.items) if scored else 0
        return lambda: calibration.inputs(batch=batch, is_channels_last=is_channels_last, report=self._report), {
            "calibration": data.name,
            "calibration_images": len(data.items),
            "calibration_sha256": data.sha256,
            **({"calibration_images_also_scored": scored_too} if scored_too else {}),
        }


def _recipes(quantiser: OnnxInt8, methods: Mapping[tuple[float, ...], RangeMethod]) -> Iterator[Int8Recipe]:
    """Yield what is tried when min-max ruins a model; `methods` are those measured so far, by their score.

    The sensitivity pass comes last and blames with the best ranges; at most half of the network is left in float.
    """
    yield Int8Recipe("percentile")
    yield Int8Recipe("entropy")
    ranges = methods[max(methods)]
    with quiet(), converter_errors("looking for what int8 harms most", "leave this format out"):
        stretches = quantiser.blamed(ranges)
    for count in range(1, min(len(stretches), STRETCHES // 2) + 1):
        yield Int8Recipe(ranges, tuple(name for stretch in stretches[:count] for name in stretch))


def _score(result: Parity) -> tuple[float, ...]:
    """Return how good a conversion is, by what its verdict goes by: usable outputs, accuracy, common predictions, noise."""
    after, agreement = result.after.value if result.after else 0.0, result.agreement
    snr_db = agreement.snr_db
    usable = not agreement.not_finite and not agreement.stuck
    return (float(usable), after, agreement.same_answer_ratio or 0.0, -math.inf if snr_db is None else snr_db)


def _joined(before: ConversionFacts, facts: ConversionFacts) -> ConversionFacts:
    """Return the facts on a file and its base, with every tool that was used."""
    tools = [str(part["with"]) for part in (before, facts) if "with" in part]
    names = dict.fromkeys(tool for text in tools for tool in text.split(", "))
    return {**before, **facts, **({"with": ", ".join(names)} if names else {})}
