"""Converts one model to several formats.

Each format is made, compared with the source, and written with a card. A ruined file is not
written, and an earlier file of its name is removed, so that neither is used by mistake.
"""

import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from pkgutil import resolve_name

from edgemeter.agent import runtimes
from edgemeter.agent.base.durable_file import replacing
from edgemeter.agent.base.errors import ConfigError, EdgemeterError, UnavailableError, os_error_as
from edgemeter.agent.base.progress import Tell
from edgemeter.agent.contract import model_file
from edgemeter.agent.contract.model_card import card_path
from edgemeter.agent.contract.model_formats import runtime_for
from edgemeter.agent.runtimes import Array, TensorInfo
from edgemeter.agent.vision.preprocess import Preprocessor
from edgemeter.models.convert import formats, parity
from edgemeter.models.convert.conversion_report import (
    Conversion,
    ConversionRequest,
    card_of,
    input_card,
)
from edgemeter.models.convert.converter_output import converter_errors, quiet
from edgemeter.models.convert.formats import ConversionFacts, MakerInputs, ModelFormat
from edgemeter.models.convert.parity import Parity, ParityInputs, image_inputs, noise_inputs
from edgemeter.models.convert.source import ModelSource


def routes_to(goals: Iterable[str], source: ModelSource) -> list[list[ModelFormat]]:
    """Return for each format the steps to make it from the source.

    Raises:
        ConfigError: a format is unknown, or cannot be made from this source.
    """
    routes = []
    for goal in dict.fromkeys(goals):
        route = formats.steps_to(source.form, formats.find_format(goal).name)
        if not route:
            advice = "it is not an fp32 file; give the fp32 file that it was made from"
            if source.form.endswith("-fp32"):
                advice = "give the PyTorch model that it was exported from (.pt2 or TorchScript)"
            raise ConfigError(
                f"cannot convert {source.path.name!r} ({source.form}) to {goal}: {advice}"
            )
        routes.append(route)
    return routes


def convert(
    request: ConversionRequest, report: Tell
) -> tuple[list[Conversion], list[EdgemeterError]]:
    """Make every requested format, and return the conversions, and the errors of those that failed.

    Raises:
        ConfigError: `out` cannot be written.
        EdgemeterError: the source itself cannot be run on the photographs.
    """
    with os_error_as(
        ConfigError, f"cannot write to {str(request.out)!r}", "choose another folder with --output"
    ):
        request.out.mkdir(parents=True, exist_ok=True)
    conversions, errors = list[Conversion](), list[EdgemeterError]()
    with tempfile.TemporaryDirectory(prefix="edgemeter-") as folder:
        converter = _Converter(request, Path(folder), report)
        for route in request.routes:
            try:
                conversions.append(converter.convert(route))
            except EdgemeterError as error:
                errors.append(error)
    return conversions, errors


class _Converter:
    """Makes formats one after the other; a shared intermediate format is made once."""

    def __init__(self, request: ConversionRequest, folder: Path, report: Tell) -> None:
        self._request, self._folder, self._report = request, folder, report
        source = request.source
        self._files: dict[str, tuple[Path, ConversionFacts]] = {source.form: (source.path, {})}
        # A wrong source, card or data set fails before the conversions, which take minutes.
        with parity.running(source.path, runtime_for(source.path), self._inputs(None)) as run:
            run.outputs(0)

    def convert(self, route: Sequence[ModelFormat]) -> Conversion:
        """Make the last format of the route, compare it, and write it."""
        for step in route:
            if step.name not in self._files:
                self._make(step)
        goal, photos = route[-1], self._request.photos
        result, stand_in = self._compare(goal)
        verdict = result.verdict
        if (
            any(step.is_calibrated for step in route)
            and not photos.is_apart
            and verdict.state != "ruined"
        ):
            reason = (
                "too few photographs to compare on others than those of its ranges; on these "
                f"{verdict.reason}"
            )
            result = replace(result, verdict=replace(verdict, state="inconclusive", reason=reason))
        return self._write(goal, result, stand_in)

    def _make(self, step: ModelFormat) -> None:
        base, before = self._files[step.base]
        source, data = self._request.source, self._request.photos.ranges
        calibration: ConversionFacts = {}
        if step.is_calibrated:
            if data is None:
                reason = f"{step.name} needs images to measure ranges on"
                raise ConfigError(
                    f"{reason}: give --calibration FOLDER with a few hundred images like those "
                    "that the model will see"
                )
            calibration = {
                "calibration": data.name,
                "calibration_images": len(data.items),
                "calibration_sha256": data.sha256,
            }
        # Converters derive names in the file from the input's name.
        target = self._folder / f"{source.name}{step.ending}"
        packages = ", ".join(f"{package} {_version(package)}" for package in step.packages)
        self._report(f"making {step.name}", 0, 1)
        task = f"converting {source.path.name!r} to {step.name} ({packages})"
        with (
            quiet(),
            converter_errors(
                task, f"export {source.path.name!r} again in another way, or leave this format out"
            ),
        ):
            facts = resolve_name(step.maker)(
                base, target, MakerInputs(partial(self._calibration_inputs, step), source.shape)
            )
        tools = ", ".join(filter(None, (str(before.get("with", "")), packages)))
        self._files[step.name] = (target, {**before, **calibration, **facts, "with": tools})

    def _calibration_inputs(self, step: ModelFormat) -> Iterator[Array]:
        """Yield the images to measure ranges on, in the base file's input format.

        A file of a fixed batch gets copies of one image.
        """
        source, data = self._request.source, self._request.photos.ranges
        if source.about is None or data is None:
            return
        image_input = input_card(source.about, step, source.form).image
        sides = (image_input.height, image_input.width)
        shape = (
            runtimes.fixed_batch(source.loaded),
            *((*sides, 3) if image_input.layout == "NHWC" else (3, *sides)),
        )
        preprocessor = Preprocessor(image_input, TensorInfo("calibration", shape, "float32"))
        for index, item in enumerate(data.items, 1):
            yield preprocessor.load(item.file)[0]
            self._report("measuring ranges", index, len(data.items))

    def _compare(self, goal: ModelFormat) -> tuple[Parity, str | None]:
        """Return the parity of the file, and a note if it cannot run here.

        The parity is that of the file it was compiled from then.
        """
        try:
            return self._parity(goal), None
        except UnavailableError as error:
            if goal.program is None:
                raise
            base = formats.FORMATS.get(goal.base, goal)
            return self._parity(
                base
            ), f"{base.name}, from which it was compiled: it does not run here ({error})"

    def _parity(self, form: ModelFormat) -> Parity:
        if form.runtime not in runtimes.names():
            raise UnavailableError(f"the runtime {form.runtime!r} is not available here")
        path = self._request.source.path
        inputs = self._inputs(None)
        with (
            parity.running(path, runtime_for(path), inputs) as source,
            parity.running(
                self._files[form.name][0], form.runtime, self._inputs(form)
            ) as conversion,
        ):
            return parity.compare(source, conversion, inputs.count, form.precision, self._report)

    def _inputs(self, form: ModelFormat | None) -> ParityInputs:
        """Return the photographs for a file of this format (None: the source), or noise.

        It is noise if there are no photographs or the model is unknown.
        """
        source, data = self._request.source, self._request.photos.compared
        if source.about is not None and data is not None:
            return image_inputs(
                source.about if form is None else input_card(source.about, form, source.form), data
            )
        return noise_inputs(source.loaded, source.shape() if len(source.loaded.inputs) <= 1 else ())

    def _write(self, goal: ModelFormat, result: Parity, stand_in: str | None) -> Conversion:
        request = self._request
        target = request.out / f"{request.source.name}{goal.ending}"
        if target.exists() and target.samefile(request.source.path):
            raise ConfigError(
                f"{str(target)!r} is the source itself: choose another folder with --output"
            )
        made_at, facts = self._files[goal.name]
        conversion = Conversion(
            goal,
            target,
            facts,
            result,
            stand_in,
            model_file.sha256(made_at),
            made_at.stat().st_size,
        )
        text, card = card_of(conversion, request), card_path(target)
        with os_error_as(
            ConfigError, f"cannot write {str(target)!r}", "choose another folder with --output"
        ):
            if conversion.is_ruined:
                target.unlink(missing_ok=True)
                card.unlink(missing_ok=True)
                return conversion
            with replacing(target, 0o644) as file, made_at.open("rb") as content:
                shutil.copyfileobj(content, file)
                # The card is replaced first: a model never has the card of another.
                card.unlink(missing_ok=True)
                if text:
                    with replacing(card, 0o644) as card_file:
                        card_file.write(text.encode())
        return conversion


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
