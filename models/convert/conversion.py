"""Converting one model to several formats: each is made, compared with the source, and written with a card.

A ruined file is not written, and the file of an earlier conversion under its name is removed: nothing uses either by mistake.
"""

import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from edgemeter.agent import runtimes
from edgemeter.agent.base.durable_file import replacing
from edgemeter.agent.base.errors import ConfigError, EdgemeterError, UnavailableError, os_error_as
from edgemeter.agent.base.progress import Tell
from edgemeter.agent.contract import model_file
from edgemeter.agent.contract.model_card import Card, card_path
from edgemeter.agent.contract.model_formats import runtime_for
from edgemeter.agent.contract.record_accuracy import Accuracy
from edgemeter.agent.datasets.dataset import Dataset
from edgemeter.models.convert import formats, parity
from edgemeter.models.convert.conversion_report import Conversion, ConversionOutcome, ConversionRequest, card_of, input_card, plain_card
from edgemeter.models.convert.format_writer import FormatWriter
from edgemeter.models.convert.formats import ConversionFacts, ModelFormat
from edgemeter.models.convert.parity import Parity, ParityInputs, ParityReference, image_inputs, noise_inputs
from edgemeter.models.convert.photo_split import PhotoSplit, split
from edgemeter.models.convert.recipe_choice import choose_recipe

ALL_FORMATS = "all"


def convert(request: ConversionRequest, report: Tell) -> ConversionOutcome:
    """Make every requested format; one that fails does not stop the others.

    Raises:
        ConfigError: a format is unknown, cannot be made from this source, or `out` cannot be written.
        EdgemeterError: the source itself cannot be run on the images.
    """
    outcome = ConversionOutcome()
    routes = _routes(request, outcome)
    with os_error_as(ConfigError, f"cannot write to {str(request.out)!r}", "choose another folder with --output"):
        request.out.mkdir(parents=True, exist_ok=True)
    steps = [step for route in routes for step in route]
    calibration = request.calibration if any(step.is_calibrated for step in steps) else None
    # A model that is unknown is compared on noise.
    pictures = request.pictures if request.source.about is not None else None
    photos = split(calibration, pictures, has_choice=any(map(_has_recipe, steps)))
    with tempfile.TemporaryDirectory(prefix="edgemeter-") as name:
        converter = _Converter(request, photos, Path(name), report)
        for route in routes:
            goal = route[-1]
            try:
                outcome.written.append(converter.convert(route))
            except EdgemeterError as error:
                if isinstance(error, UnavailableError) and ALL_FORMATS in request.goals and goal.program is not None:
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


def _has_recipe(step: ModelFormat) -> bool:
    return step.is_calibrated and step.runtime == "onnx"


class _Converter:
    """Makes formats one after the other; a format that several are made from is made once. The source runs at once, for the judgement."""

    def __init__(self, request: ConversionRequest, photos: PhotoSplit, folder: Path, report: Tell) -> None:
        self._request, self._photos, self._folder, self._report = request, photos, folder, report
        self._writer = FormatWriter(request, photos.ranges, report)
        self._references: dict[str, ParityReference] = {}
        self._files: dict[str, tuple[Path, ConversionFacts]] = {request.source.form: (request.source.path, {})}
        self._failed: dict[str, EdgemeterError] = {}
        self._reference(photos.compared)

    def convert(self, route: Sequence[ModelFormat]) -> Conversion:
        """Make the last format of the route, compare it, and write it."""
        for step in route:
            self._make(step)
        goal = route[-1]
        path, facts = self._files[goal.name]
        self._report(f"comparing {goal.name}", 0, 1)
        result, stand_in = self._compare(goal, path)
        if self._photos.judgement is None and any(step.is_calibrated for step in route) and result.verdict.state != "ruined":
            reason = f"too few photographs to keep some from the {facts['calibration_images']} that its ranges were measured on"
            result = replace(
                result, verdict=replace(result.verdict, state="inconclusive", reason=f"{reason}; there {result.verdict.reason}")
            )
        return self._write(goal, path, facts, result, stand_in)

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
            facts = self._chosen(step, base, target) if _has_recipe(step) else self._writer.write(step, base, target)
        except EdgemeterError as error:
            self._failed[step.name] = error
            raise
        self._files[step.name] = (target, _joined(before, facts))

    def _chosen(self, step: ModelFormat, base: Path, target: Path) -> ConversionFacts:
        """Write `target` by the recipe that the photographs to choose by prefer; what ranges are measured on where there are none."""
        ranges = self._photos.ranges.data if self._photos.ranges else None
        data = self._photos.choice or ranges
        facts = choose_recipe(self._writer, step, base, target, lambda path: self._parity(step, path, step.precision, data), self._report)
        return {**facts, "recipe_chosen_on": f"{len(data.items)} {'calibration ' if data is ranges else ''}images" if data else "noise"}

    def _compare(self, goal: ModelFormat, path: Path) -> tuple[Parity, str | None]:
        """Return the parity of the file; if it cannot run here, that of the file it was compiled from, with a note on it."""
        try:
            return self._parity(goal, path, goal.precision, self._photos.compared), None
        except UnavailableError as error:
            if goal.program is None:
                raise
            base = formats.FORMATS.get(goal.base, goal)
            stand_in = f"{base.name}, from which it was compiled: it does not run here ({error})"
            return self._parity(base, self._files[goal.base][0], base.precision, self._photos.compared), stand_in

    def _parity(self, form: ModelFormat, path: Path, precision: str, data: Dataset | None) -> Parity:
        if form.runtime not in runtimes.names():
            raise UnavailableError(f"the runtime {form.runtime!r} is not available here")
        source = self._request.source
        about = None if source.about is None else input_card(source.about, form, source.form)
        return parity.compare(self._reference(data), path, form.runtime, self._inputs(data, about), precision, self._report)

    def _accuracy(self, goal: ModelFormat, path: Path, result: Parity) -> Accuracy | None:
        """Return the accuracy on all of the user's data, which a run on them must reach; that of the judgement if this is the same."""
        data, source = self._request.pictures, self._request.source
        if data is None or not data.has_truth or source.about is None or data is self._photos.judgement:
            return result.after
        inputs = self._inputs(data, input_card(source.about, goal, source.form))
        return parity.run_on(path, goal.runtime, inputs, lambda *_: None, self._report).accuracy

    def _reference(self, data: Dataset | None) -> ParityReference:
        """Return the source's outputs for these photographs, or for noise; it runs once on each."""
        key = data.sha256 if data else "noise"
        if key not in self._references:
            source, outputs = self._request.source.path, Path(tempfile.mkdtemp(dir=self._folder))
            self._references[key] = parity.reference(source, runtime_for(source), self._inputs(data, None), outputs, self._report)
        return self._references[key]

    def _inputs(self, data: Dataset | None, about: Card | None) -> ParityInputs:
        """Return the images for a file with this card (None: the source's), or noise if there are none or the model is unknown."""
        source = self._request.source
        if source.about is not None and data is not None:
            return image_inputs(about or source.about, data)
        return noise_inputs(source.loaded, source.shape() if len(source.loaded.inputs) <= 1 else ())

    def _write(self, goal: ModelFormat, made_at: Path, facts: ConversionFacts, result: Parity, stand_in: str | None) -> Conversion:
        request = self._request
        target = request.out / f"{request.source.name}{goal.ending}"
        if target.exists() and target.samefile(request.source.path):
            raise ConfigError(f"{str(target)!r} is the source itself: choose another folder with --output")
        digest, size_bytes = model_file.sha256(made_at), made_at.stat().st_size
        accuracy = None if stand_in or result.verdict.state == "ruined" else self._accuracy(goal, made_at, result)
        conversion = Conversion(goal, target, facts, result, stand_in, digest, size_bytes, self._photos, accuracy)
        card, plain = card_path(target), plain_card(target)
        with os_error_as(ConfigError, f"cannot write {str(target)!r}", "choose another folder with --output"):
            if conversion.is_ruined:
                stale = [target, card, plain]
            else:
                name, text = (plain if request.source.about is None else card), card_of(conversion, request)
                stale = [card if name is plain else plain]
                # The card takes its place first: a model is never there with the card of another.
                with replacing(target, 0o644) as file, replacing(name, 0o644) as card_file, made_at.open("rb") as content:
                    shutil.copyfileobj(content, file)
                    card_file.write(text.encode())
            for old in stale:
                old.unlink(missing_ok=True)
        return conversion


def _joined(before: ConversionFacts, facts: ConversionFacts) -> ConversionFacts:
    """Return the facts on a file and its base, with every tool that was used."""
    tools = [str(part["with"]) for part in (before, facts) if "with" in part]
    names = dict.fromkeys(tool for text in tools for tool in text.split(", "))
    return {**before, **facts, **({"with": ", ".join(names)} if names else {})}
