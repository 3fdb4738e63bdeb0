"""The command `edgemeter benchmark`.

It measures one model in every format of this board, with a recommendation.
"""

from collections.abc import Iterable
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

import click
import msgspec

from edgemeter.agent.base.cli.notes import note, warn
from edgemeter.agent.base.cli.options import (
    PATH,
    config_option,
    format_option,
    matters_option,
    quiet_option,
    save_option,
    trusted_option,
)
from edgemeter.agent.base.cli.tables import Format
from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.cli.case_options import (
    MODEL_OPTIONS,
    SHORT_MODES,
    case_options,
    case_settings,
)
from edgemeter.agent.cli.session_options import power_option, session_settings

if TYPE_CHECKING:
    from edgemeter.agent.contract.case_settings import Settings
    from edgemeter.agent.contract.suite import Suite
    from edgemeter.models.cli.board_formats import BoardFormats

RAPID = {**SHORT_MODES, "default": "rapid", "help": "Length of a run. Default: rapid."}
# With several formats of one file, the runtime is what is compared.
OPTIONS = (
    *(key for key in MODEL_OPTIONS if key not in {"runtime", "backend"}), "subset", "seed", "mode",
    "repeats", "precision_ratio", "time_s",
)  # fmt: skip
# Measures as `edgemeter compare`, in the collector, which the package `models` does not import.
_RECOMMEND = "edgemeter.collector.cli.compare:recommend_format"


@click.command()
@click.argument("model")
@click.option(
    "-o",
    "--output",
    "out",
    type=PATH,
    default=Path("converted"),
    help="Output folder. Default: converted.",
)
@click.option("--calibration", type=PATH, help="Images to set int8 ranges, other than --data.")
@click.option(
    "--calibration-images",
    metavar="N",
    type=click.IntRange(1),
    default=200,
    help="Calibration images at most. Default: 200.",
)
@matters_option
@case_options(*OPTIONS, mode=RAPID)
@power_option
@save_option
@trusted_option
@config_option
@quiet_option
@format_option()
def benchmark(
    model: str, out: Path, matters_ratio: float, *, form: Format, is_trusted: bool, **options: Any
) -> None:
    """Convert a model to each format of this board, measure all, recommend one.

    MODEL is a PyTorch, ONNX or LiteRT file in fp32, or a shipped model.
    Install the converters first: pip install 'edgemeter[convert]'.

    Example: edgemeter benchmark model.pt2 --calibration photos/ --data val/ --annotations val.json
    """
    from edgemeter.agent.base import config
    from edgemeter.agent.contract.model_formats import GENERATORS, runtime_for
    from edgemeter.agent.power.detect import check_sensors
    from edgemeter.agent.session import checks
    from edgemeter.agent.session.checks import by_reason, refusals
    from edgemeter.models.cli.board_formats import FormatRequest, convert_all
    from edgemeter.models.convert.source import find_source

    source = find_source(model)
    if runtime_for(source) in GENERATORS:
        raise ConfigError(
            f"{source.name!r} is a language model, which is not converted: compare its files "
            "with `edgemeter compare A B`"
        )
    # A wrong model, data set or sensor fails before the conversions, which take minutes.
    settings = case_settings(options)
    configuration = config.read(options["config"])
    check_sensors(options["power"], configuration.power, configuration.sensors)
    checks.check(_suite_of([(source, None)], settings), opens=True)
    try:
        board_formats = convert_all(
            FormatRequest(
                source, out, options["calibration"], options["calibration_images"], is_trusted
            ),
            note,
        )
    except KeyboardInterrupt:
        raise KeyboardInterrupt(
            f"interrupted while converting: what was written is in {str(out)!r}, "
            "nothing is measured"
        ) from None
    candidates = board_formats.candidates(source)
    suite = _suite_of(candidates.values(), settings)
    refused = refusals(suite)
    left_out = by_reason(suite, refused)
    notes = [f"no {text}" for text in _not_converted(board_formats)]
    cases = {
        name: case
        for number, (name, case) in enumerate(zip(candidates, suite.cases, strict=True))
        if number not in refused
    }
    if len(cases) == 1:
        for line in (*map(str, left_out), *notes):
            click.echo(line, err=True)
        raise ConfigError(
            f"nothing to choose from but {source.name!r} itself: install or give what "
            "the lines above list"
        )
    for reason in left_out:
        warn(f"edgemeter: left out: {reason}")
    if board_formats.written:
        notes.append(f"the converted files are in {str(out.resolve())!r}")
    document = {
        "files": {name: str(path) for name, path in board_formats.written.items()},
        "not_converted": board_formats.reasons,
    }
    session = session_settings(options)
    resolve_name(_RECOMMEND)(cases, settings, session, matters_ratio, form, notes, document)


def _suite_of(candidates: Iterable[tuple[Path, str | None]], settings: "Settings") -> "Suite":
    from edgemeter.agent.contract.suite import Suite
    from edgemeter.agent.measuring.suites import single_case

    cases = [
        single_case(path, msgspec.structs.replace(settings, runtime=runtime))
        for path, runtime in candidates
    ]
    return Suite("benchmark", tuple(cases))


def _not_converted(board_formats: "BoardFormats") -> list[str]:
    """Return a line for each reason, with its formats."""
    names: dict[str, list[str]] = {}
    for name, reason in board_formats.reasons.items():
        # The converter names the requested format.
        names.setdefault(reason.replace(name, "it"), []).append(name)
    return [
        f"{', '.join(of)}: {reason if len(of) > 1 else board_formats.reasons[of[0]]}"
        for reason, of in names.items()
    ]
