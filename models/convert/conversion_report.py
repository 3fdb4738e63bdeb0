"""Request and outcome of a conversion, the card beside the file, a JSON row, and the text for people."""

import math
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from edgemeter.agent.base.errors import EdgemeterError
from edgemeter.agent.base.metrics import gain, metric_name
from edgemeter.agent.contract.model_card import Card, card_path
from edgemeter.agent.contract.record_accuracy import Accuracy
from edgemeter.agent.datasets.dataset import Dataset
from edgemeter.models.catalogue.shipped_models import card_tables, card_text
from edgemeter.models.convert import formats
from edgemeter.models.convert.agreement import OutputAgreement
from edgemeter.models.convert.formats import ConversionFacts, ModelFormat
from edgemeter.models.convert.parity import Parity
from edgemeter.models.convert.source import CalibrationImages, ModelSource


@dataclass(frozen=True, slots=True)
class ConversionRequest:
    """A requested conversion. `pictures` are compared and scored on (None: there are none); the card names their `role`."""

    source: ModelSource
    goals: tuple[str, ...]
    out: Path
    calibration: CalibrationImages | None
    pictures: Dataset | None
    role: str
    keep: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Conversion:
    """One written file. `stand_in` names what was compared in its place if this machine cannot run the file itself."""

    format: ModelFormat
    path: Path
    made: ConversionFacts
    parity: Parity
    stand_in: str | None
    sha256: str
    size_bytes: int


@dataclass(slots=True)
class ConversionOutcome:
    """The files written, the errors, and what was left out."""

    written: list[Conversion] = field(default_factory=list)
    errors: list[EdgemeterError] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)


Values = dict[str, str | int | float]


def input_card(about: Card, form: ModelFormat, source_form: str) -> Card:
    """Return the source's card for a file of this format: same preparation, its own precision and layout."""
    is_channels_last = form.runtime in ("litert", "edgetpu") and source_form == formats.TORCH
    prepared = msgspec.structs.replace(about.image, layout="NHWC") if is_channels_last else about.input
    return msgspec.structs.replace(about, precision=form.precision, input=prepared, sha256=None, made={}, accuracy={}, parity={})


def write_card(conversion: "Conversion", request: "ConversionRequest") -> None:
    """Write the card beside the file; for an unknown model only how it was made, which no runtime reads."""
    source = request.source
    origin, compared = _made(conversion, request), _parity(conversion, request)
    if source.about is None:
        settings = {"sha256": conversion.sha256, "precision": conversion.format.precision}
        plain_card(conversion.path).write_text(card_tables(settings, {"made": origin, "parity": compared}), encoding="utf-8")
        return
    after = conversion.parity.after
    scored = {} if after is None or conversion.stand_in else figures(after, conversion.parity.runtimes[1])
    about = input_card(source.about, conversion.format, source.form)
    about = msgspec.structs.replace(about, sha256=conversion.sha256, made=origin, accuracy=scored, parity=compared)
    card_path(conversion.path).write_text(card_text(about), encoding="utf-8")


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
        "file": str(conversion.path),
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
        "made": _made(conversion, request),
        "parity": _parity(conversion, request),
    }


def _made(conversion: "Conversion", request: "ConversionRequest") -> Values:
    source = request.source
    origin = {"by": "edgemeter models convert", "format": conversion.format.name, "from": source.path.name, "from_sha256": source.sha256}
    return {**origin, **conversion.made, **({"guessed": "; ".join(source.guesses)} if source.guesses else {})}


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
    on = f"{request.role}: {request.pictures.name}" if request.pictures is not None and request.source.about is not None else "noise"
    values |= {"compared_inputs": agreement.inputs, "on": on}
    if on != "noise" and request.pictures is not None:
        values["dataset_sha256"] = request.pictures.sha256
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
    cells |= {} if snr_db is None else {"SNR dB": "identical" if snr_db == math.inf else f"{snr_db:.1f}"}
    return cells


def remedy(conversion: "Conversion") -> str:
    """Return what to try."""
    if "tried" in conversion.made and conversion.parity.verdict.state == "ruined":
        return f"no recipe saved it ({conversion.made['tried']}): calibrate on images like those that the model will see, or use fp16"
    if "calibration_images" in conversion.made:
        remedy_text = "calibrate on more images like those that the model will see (--calibration, --calibration-images)"
        return f"{remedy_text}, or keep the outputs' last operations in float (--exclude REGEX)"
    if conversion.format.precision == "fp16":
        return "keep operations that exceed fp16's range in float (--exclude REGEX)"
    if conversion.format.precision == "fp32":
        return "the converter writes this model incorrectly: try another version of the converter, or export the model in another way"
    return "try static int8 with --calibration FOLDER, or fp16"
