"""Request and outcome of a conversion, the card beside the file, a JSON row, and the text for people."""

import math
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from edgemeter.agent.base.errors import EdgemeterError
from edgemeter.agent.base.metrics import gain, metric_name
from edgemeter.agent.base.toml import toml_document
from edgemeter.agent.contract.model_card import Card
from edgemeter.agent.contract.record_accuracy import Accuracy
from edgemeter.agent.datasets.dataset import Dataset
from edgemeter.models.catalogue.shipped_models import card_text
from edgemeter.models.convert import formats
from edgemeter.models.convert.agreement import OutputAgreement
from edgemeter.models.convert.formats import ConversionFacts, ModelFormat
from edgemeter.models.convert.parity import Parity
from edgemeter.models.convert.photo_split import LEAST, PhotoSplit
from edgemeter.models.convert.source import CalibrationImages, ModelSource


@dataclass(frozen=True, slots=True)
class ConversionRequest:
    """A requested conversion. `pictures` are to compare and score on (None: the calibration images); the card names their `role`."""

    source: ModelSource
    goals: tuple[str, ...]
    out: Path
    calibration: CalibrationImages | None
    pictures: Dataset | None
    role: str
    keep: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Conversion:
    """One file, written unless it is ruined. `stand_in` names what was compared in its place if this machine cannot run the file itself.

    `accuracy` is on all of the data, also on what ranges were measured on and the recipe chosen by: a run on them must reach it, and the
    verdict does not go by it.
    """

    format: ModelFormat
    path: Path
    made: ConversionFacts
    parity: Parity
    stand_in: str | None
    sha256: str
    size_bytes: int
    photos: PhotoSplit
    accuracy: Accuracy | None

    @property
    def is_ruined(self) -> bool:
        """Whether it was not written for what it computes."""
        return self.parity.verdict.state == "ruined"


@dataclass(slots=True)
class ConversionOutcome:
    """The files made, the errors, and what was left out."""

    written: list[Conversion] = field(default_factory=list)
    errors: list[EdgemeterError] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)


Values = dict[str, str | int | float]


def input_card(about: Card, form: ModelFormat, source_form: str) -> Card:
    """Return the source's card for a file of this format: same preparation, its own precision and layout."""
    is_channels_last = form.runtime in ("litert", "edgetpu") and source_form == formats.TORCH
    prepared = msgspec.structs.replace(about.image, layout="NHWC") if is_channels_last else about.input
    return msgspec.structs.replace(about, precision=form.precision, input=prepared, sha256=None, made={}, accuracy={}, parity={})


def card_of(conversion: "Conversion", request: "ConversionRequest") -> str:
    """Return the text of the card beside the file; for an unknown model only how it was made, which no runtime reads."""
    source = request.source
    origin, compared = _made(conversion, request), _parity(conversion, request)
    if source.about is None:
        settings = {"sha256": conversion.sha256, "precision": conversion.format.precision}
        return toml_document({**settings, "made": origin, "parity": compared})
    scored = {} if conversion.accuracy is None else figures(conversion.accuracy, conversion.parity.runtimes[1])
    about = input_card(source.about, conversion.format, source.form)
    return card_text(msgspec.structs.replace(about, sha256=conversion.sha256, made=origin, accuracy=scored, parity=compared))


def plain_card(model: Path) -> Path:
    """Return the path of the facts on a file of an unknown model, which has no card."""
    return model.with_name(model.name + ".made.toml")


def figures(accuracy: Accuracy, runtime: str) -> Values:
    """Return an accuracy as a card's table `accuracy`."""
    parts = {"value": accuracy.value, **{name: accuracy.detail.get(name) for name in ("ap50", "ap75", "top5")}}
    return {
        "metric": accuracy.metric,
        **{name: round(value, 4) for name, value in parts.items() if value is not None},
        "images": accuracy.images,
        "dataset_sha256": accuracy.dataset_sha256,
        "runtime": runtime,
    }


def report_row(conversion: "Conversion", request: "ConversionRequest") -> dict[str, Any]:
    """Return the conversion as a JSON row."""
    parity = conversion.parity
    return {
        "format": conversion.format.name,
        "file": None if conversion.is_ruined else str(conversion.path),
        "sha256": conversion.sha256,
        "size_bytes": conversion.size_bytes,
        "source_size_bytes": request.source.path.stat().st_size,
        "verdict": parity.verdict.state,
        "reason": parity.verdict.reason,
        "compared": conversion.stand_in,
        "accuracy_before": parity.before.value if parity.before else None,
        "accuracy_after": parity.after.value if parity.after else None,
        "same_answer_ratio": parity.agreement.same_answer_ratio,
        "outputs": [
            {
                **asdict(output),
                # JSON has no infinity, the ratio of identical outputs.
                "snr_db": output.snr_db if output.snr_db is not None and math.isfinite(output.snr_db) else None,
                "identical": output.snr_db == math.inf,
            }
            for output in parity.agreement.outputs
        ],
        "inputs": conversion.photos.counts,
        "made": _made(conversion, request),
        "parity": _parity(conversion, request),
    }


def _made(conversion: "Conversion", request: "ConversionRequest") -> Values:
    source = request.source
    origin = {"by": "edgemeter models convert", "format": conversion.format.name, "from": source.path.name, "from_sha256": source.sha256}
    excluded = {"excluded": ", ".join(request.keep)} if request.keep else {}
    return {**origin, **conversion.made, **excluded, **({"guessed": "; ".join(source.guesses)} if source.guesses else {})}


def _parity(conversion: "Conversion", request: "ConversionRequest") -> Values:
    parity = conversion.parity
    agreement = parity.agreement
    values: Values = {"verdict": parity.verdict.state, "reason": parity.verdict.reason}
    if conversion.stand_in:
        values["of"] = conversion.stand_in
    if parity.before is not None and parity.after is not None:
        values |= {
            "metric": parity.before.metric,
            "before": round(parity.before.value, 4),
            "after": round(parity.after.value, 4),
            "scored_images": parity.after.images,
        }
    if agreement.same_answer_ratio is not None:
        values["same_answer_ratio"] = round(agreement.same_answer_ratio, 4)
    values |= {f"output_{index}": _output(output) for index, output in enumerate(agreement.outputs)}
    data = conversion.photos.compared if request.source.about is not None else None
    values |= {"compared_inputs": agreement.inputs, "on": f"{request.role}: {data.name}" if data else "noise"}
    if data:
        values |= {"judged_images": conversion.photos.counts["judgement"], "dataset_sha256": data.sha256}
    return {
        **values,
        "runtime_before": parity.runtimes[0],
        "runtime_after": parity.runtimes[1],
        "size_before_bytes": request.source.path.stat().st_size,
        "size_after_bytes": conversion.size_bytes,
    }


def _output(output: OutputAgreement) -> str:
    """Return the agreement of one output as text."""
    if output.largest_error is None or output.lowest_cosine is None or output.snr_db is None:
        return f"{output.name}: cannot be compared (another shape, or not finite)"
    snr = "no difference" if output.snr_db == math.inf else f"SNR {output.snr_db:.1f} dB"
    return f"{output.name}: largest error {output.largest_error:.3g}, lowest cosine {output.lowest_cosine:.6f}, {snr}"


def report_cells(conversion: "Conversion") -> dict[str, str]:
    """Return the cells of a table row by heading, without unknown ones."""
    parity = conversion.parity
    before, after = parity.before, parity.after
    same, snr_db = parity.agreement.same_answer_ratio, parity.agreement.snr_db
    cells = {"file": conversion.path.name, "kB": f"{conversion.size_bytes / 1000:.0f}"}
    if before is not None and after is not None:
        cells |= {
            metric_name(after.metric): f"{after.value:.4f}",
            "lost": f"{gain(before.value, before.better) - gain(after.value, after.better):+.4f}",
        }
    cells |= {} if same is None else {"same": f"{same:.1%}"}
    facts = conversion.made
    cells |= {"float": f"{facts['float_nodes']}/{facts['nodes']}"} if "float_nodes" in facts else {}
    cells |= {} if snr_db is None else {"SNR dB": "identical" if snr_db == math.inf else f"{snr_db:.1f}"}
    return cells


def photo_words(photos: PhotoSplit) -> str:
    """Return which inputs served what, in a sentence; empty where nothing was measured on any, and enough judged."""
    counts = photos.counts
    judged = f"{counts['judgement']} to judge" if counts["judgement"] else "none to judge: give more with --data"
    if 0 < counts["judgement"] < 2 * LEAST:
        judged += ", which are few: give more with --data"
    if not counts["ranges"]:
        return f"inputs: {judged}" if photos.judgement and counts["judgement"] < 2 * LEAST else ""
    choice_words = f", {counts['choice']} to choose the recipe by" if counts["choice"] else ""
    return f"inputs: {counts['ranges']} to measure ranges on{choice_words}, {judged}"


def remedy(conversion: "Conversion") -> str:
    """Return what to try."""
    if "tried" in conversion.made and conversion.is_ruined:
        return f"no recipe saved it ({conversion.made['tried']}): calibrate on images like those that the model will see, or use fp16"
    if "calibration_images" in conversion.made:
        remedy_text = "calibrate on more images like those that the model will see (--calibration, --calibration-images)"
        return f"{remedy_text}, or keep the outputs' last operations in float (--exclude REGEX)"
    if conversion.format.precision == "fp16":
        return "keep operations that exceed fp16's range in float (--exclude REGEX)"
    if conversion.format.precision == "fp32":
        return "the converter writes this model incorrectly: try another version of the converter, or export the model in another way"
    return "try static int8 with --calibration FOLDER, or fp16"
