"""What is said of a conversion: the card beside the file, a row for machines, and the words for people."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from edgemeter.agent.recognition import card
from edgemeter.agent.records import Accuracy
from edgemeter.models import card_file
from edgemeter.models.convert import formats
from edgemeter.models.convert.agreement import OutputAgreement
from edgemeter.models.convert.formats import Format

if TYPE_CHECKING:
    from edgemeter.models.convert.conversion import Conversion, Request

Values = dict[str, str | int | float]


def input_card(about: card.Card, form: Format, source_form: str) -> card.Card:
    """Return the source's card for a file of this form: same preparation, its own precision and layout."""
    is_channels_last = form.runtime in ("litert", "edgetpu") and source_form == formats.TORCH
    prepared = msgspec.structs.replace(about.input, layout="NHWC") if is_channels_last else about.input
    return msgspec.structs.replace(about, precision=form.precision, input=prepared, sha256=None, made={}, accuracy={}, parity={})


def write(conversion: "Conversion", request: "Request") -> None:
    """Write the card beside the file; of a model that is not known, only how it was made, which no runtime reads."""
    source = request.source
    made, compared = _made(conversion, request), _parity(conversion, request)
    if source.about is None:
        known = {"sha256": conversion.sha256, "precision": conversion.format.precision}
        plain_card(conversion.path).write_text(card_file.tables(known, {"made": made, "parity": compared}), encoding="utf-8")
        return
    after = conversion.parity.after
    scored = {} if after is None or conversion.stand_in else figures(after, conversion.parity.runtime_after)
    about = input_card(source.about, conversion.format, source.form)
    about = msgspec.structs.replace(about, sha256=conversion.sha256, made=made, accuracy=scored, parity=compared)
    card.beside(conversion.path).write_text(card_file.text(about), encoding="utf-8")


def plain_card(model: Path) -> Path:
    """Return where is said how a file was made that has no card, because the model in it is not known."""
    return model.with_name(model.name + ".made.toml")


def figures(found: Accuracy, runtime: str) -> Values:
    """Return an accuracy as a card's table `accuracy`."""
    parts = {"value": found.value, "ap50": found.detail.get("ap50"), "ap75": found.detail.get("ap75"), "top5": found.detail.get("top5")}
    return {
        "metric": found.metric,
        **{name: round(value, 4) for name, value in parts.items() if value is not None},
        "images": found.images,
        "dataset_sha256": found.dataset_sha256,
        "runtime": runtime,
    }


def row(conversion: "Conversion", request: "Request") -> dict[str, Any]:
    """Return the conversion for machines."""
    found = conversion.parity
    return {
        "format": conversion.format.name,
        "file": str(conversion.path),
        "sha256": conversion.sha256,
        "size_bytes": conversion.size_bytes,
        "source_size_bytes": request.source.path.stat().st_size,
        "verdict": found.verdict.state,
        "reason": found.verdict.reason,
        "compared": conversion.stand_in,
        "accuracy_before": found.before.value if found.before else None,
        "accuracy_after": found.after.value if found.after else None,
        "same_answer_ratio": found.agreement.same_answer_ratio,
        "outputs": [
            {
                "name": output.name,
                "largest_error": output.largest_error,
                "lowest_cosine": output.lowest_cosine,
                # JSON has no infinity: without any difference there is no ratio.
                "snr_db": output.snr_db if output.snr_db is not None and math.isfinite(output.snr_db) else None,
                "identical": output.snr_db == math.inf,
            }
            for output in found.agreement.outputs
        ],
        "made": _made(conversion, request),
        "parity": _parity(conversion, request),
    }


def _made(conversion: "Conversion", request: "Request") -> Values:
    source = request.source
    guessed = {"guessed": "; ".join(source.guesses)} if source.guesses else {}
    return {
        "by": "edgemeter models convert",
        "format": conversion.format.name,
        "from": source.path.name,
        "from_sha256": source.sha256,
        **conversion.made,
        **guessed,
    }


def _parity(conversion: "Conversion", request: "Request") -> Values:
    found = conversion.parity
    agreement = found.agreement
    values: Values = {"verdict": found.verdict.state, "reason": found.verdict.reason}
    if conversion.stand_in:
        values["of"] = conversion.stand_in
    if found.before is not None and found.after is not None:
        values |= {
            "metric": found.before.metric,
            "before": round(found.before.value, 4),
            "after": round(found.after.value, 4),
            "scored_images": found.after.images,
        }
    if agreement.same_answer_ratio is not None:
        values["same_answer_ratio"] = round(agreement.same_answer_ratio, 4)
    values |= {f"output_{place}": _output(output) for place, output in enumerate(agreement.outputs)}
    on = f"{request.role}: {request.pictures.name}" if request.pictures is not None and request.source.about is not None else "noise"
    values |= {"compared_inputs": agreement.inputs, "on": on}
    if on != "noise" and request.pictures is not None:
        values["dataset_sha256"] = request.pictures.sha256
    return {
        **values,
        "runtime_before": found.runtime_before,
        "runtime_after": found.runtime_after,
        "size_before_bytes": request.source.path.stat().st_size,
        "size_after_bytes": conversion.size_bytes,
    }


def _output(output: OutputAgreement) -> str:
    """Return one output's agreement in words."""
    if output.largest_error is None or output.lowest_cosine is None or output.snr_db is None:
        return f"{output.name}: cannot be compared (another shape, or not finite)"
    snr = "no difference" if output.snr_db == math.inf else f"SNR {output.snr_db:.1f} dB"
    return f"{output.name}: largest error {output.largest_error:.3g}, lowest cosine {output.lowest_cosine:.6f}, {snr}"


def metric(found: Accuracy) -> str:
    """Return what the accuracy is called in a table."""
    return {"coco_ap": "AP", "top1": "top-1"}.get(found.metric, found.metric)


def cells(conversion: "Conversion") -> dict[str, str]:
    """Return what a table shows of it, by heading; what is not known is not there."""
    found = conversion.parity
    before, after = found.before, found.after
    same, snr_db = found.agreement.same_answer_ratio, found.agreement.snr_db
    shown = {"file": conversion.path.name, "kB": f"{conversion.size_bytes / 1000:.0f}"}
    if before is not None and after is not None:
        shown |= {metric(after): f"{after.value:.4f}", "lost": f"{before.value - after.value:+.4f}"}
    shown |= {} if same is None else {"same": f"{same:.1%}"}
    shown |= {} if snr_db is None else {"SNR dB": "same bits" if snr_db == math.inf else f"{snr_db:.1f}"}
    return shown


def remedy(conversion: "Conversion") -> str:
    """Return what to try."""
    if "calibration_images" in conversion.made:
        pictures = "calibrate on more pictures like those that the model will see (--calibration, --calibration-images)"
        return f"{pictures}, or keep the outputs' last operations in float (--exclude REGEX)"
    if conversion.format.precision == "fp16":
        return "keep what exceeds fp16's range in float (--exclude REGEX)"
    if conversion.format.precision == "fp32":
        return "the converter writes this model wrongly: try another version of it, or export the model in another way"
    return "try static int8 with --calibration FOLDER, or fp16"
