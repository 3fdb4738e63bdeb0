"""The command `edgemeter models benchmark`: one model in every format that this board runs, which of them to take, and why."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.options import PATH, config_option, format_option, matters_option, quiet_option, save_option, trusted_option
from edgemeter.agent.base.progress import note
from edgemeter.agent.base.tables import Format, console_for, print_data
from edgemeter.agent.cli.case_options import MODEL_OPTIONS, SHORT_MODES, case_options, power_option

if TYPE_CHECKING:
    from rich.console import Console

    from edgemeter.agent.session.turn_comparison import MeasuredInTurn
    from edgemeter.models.cli.board_formats import BoardFormats

RAPID = {**SHORT_MODES, "default": "rapid", "help": "Length of a run. Default: rapid."}
# Of several formats of one file, the runtime is what is compared.
OPTIONS = (*(key for key in MODEL_OPTIONS if key not in {"runtime", "backend"}), "subset", "seed", "mode")


@click.command()
@click.argument("model")
@click.option("-o", "--output", "out", type=PATH, default=Path("converted"), show_default=True, help="Folder for the converted files.")
@click.option("--calibration", type=PATH, help="Folder of images to measure int8 ranges on, not those of --data.")
@click.option("--calibration-images", type=click.IntRange(1), default=200, show_default=True, help="Largest number of calibration images.")
@click.option(
    "--repeats", "runs", type=click.IntRange(2, 1000), default=5, show_default=True, help="Most runs of each; a clear result ends earlier."
)
@matters_option
@case_options(*OPTIONS, mode=RAPID)
@power_option
@save_option
@trusted_option
@config_option
@quiet_option
@format_option()
def benchmark(model: str, out: Path, runs: int, matters: float, *, form: Format, save: bool, is_trusted: bool, **options: Any) -> None:
    """Convert a model to every format that this board can run, measure each in turn, and name the one to take.

    MODEL is a PyTorch, ONNX or LiteRT file in fp32, or a shipped model. Needs the extra convert: pip install 'edgemeter[convert]'.
    Accuracy needs --data and --annotations, energy a power sensor.

    Example: edgemeter models benchmark model.pt2 --calibration photos/ --data val/ --annotations val.json
    """
    from edgemeter.agent.base import config
    from edgemeter.agent.cli import compare_models
    from edgemeter.agent.contract.model_formats import GENERATORS, runtime_for
    from edgemeter.agent.ledger.own_runs import saving
    from edgemeter.agent.session.hopeless import by_reason, refusals
    from edgemeter.models.cli.board_formats import FormatRequest, convert_all
    from edgemeter.models.convert.source import find_source

    source = find_source(model)
    if runtime_for(source) in GENERATORS:
        raise ConfigError(
            f"{source.name!r} is a language model: write its types with `edgemeter models quantise`, then measure: edgemeter compare A B"
        )
    # What is wrong with model, data or sensors shows before the conversions, which take minutes.
    compare_models.check_cases(_suite_of([(source, None)], options).cases, options)
    try:
        request = FormatRequest(source, out, options["calibration"], options["calibration_images"], is_trusted)
        converted_files = convert_all(request, note)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"interrupted while converting: what was written is in {str(out)!r}, nothing is measured") from None
    candidates = converted_files.candidates(source)
    suite = _suite_of(candidates, options)
    refused = refusals(suite)
    left_out = by_reason(suite, refused)
    candidates = [candidate for number, candidate in enumerate(candidates) if number not in refused]
    if len(candidates) == 1:
        for line in (*map(str, left_out), *(f"no {text}" for text in _not_converted(converted_files))):
            click.echo(line, err=True)
        raise ConfigError(f"nothing to choose from but {candidates[0][0].name!r} itself: install or give what the lines above name")
    for reason in left_out:
        note(f"left out: {reason}")
    cases = [case for number, case in enumerate(suite.cases) if number not in refused][: compare_models.MOST_MODELS]
    with saving(config.read(options["config"]), note, is_wanted=save) as keep:
        comparison = compare_models.measure_cases(cases, runs, matters, keep, options, note)
        files = {name: str(path) for name, path in converted_files.written.items()}
        document = {"pick": comparison.pick, "files": files, "not_converted": converted_files.reasons, "comparison": comparison}
        if not print_data(form, document):
            show(comparison, [path for path, _ in candidates], converted_files, console_for(form))
        note(f"the converted files are in {str(out.resolve())!r}" if converted_files.written else None)
        compare_models.stop_if_interrupted(comparison)


def _suite_of(candidates: Sequence[tuple[Path, str | None]], options: Mapping[str, Any]) -> Any:
    from edgemeter.agent.cli import run_session
    from edgemeter.agent.contract.suite import Suite

    return Suite("benchmark", tuple(run_session.single_case(path, {**options, "runtime": runtime}) for path, runtime in candidates))


def show(comparison: "MeasuredInTurn", paths: Sequence[Path], converted_files: "BoardFormats", console: "Console") -> None:
    """Print the pick with its reason, a row for each format, what is out and why, and where it holds."""
    from edgemeter.agent.base.terminal import TableColumn, print_text
    from edgemeter.agent.cli import compare_models
    from edgemeter.agent.contract import model_file

    print_text(console, compare_models.pick_text(comparison))
    sizes = [sum(part.stat().st_size for part in model_file.parts(path)) / 1e6 for path in paths]
    file_mb = TableColumn("file MB", [f"{size_mb:.3g}" for size_mb in sizes], rank=1)
    console.print(compare_models.sides_table(comparison, console.width, file_mb))
    for name, reason in comparison.pick.refused.items():
        print_text(console, f"{name} is out: {reason}")
    for line in (*compare_models.notes_of(comparison), *(f"no {text}" for text in _not_converted(converted_files))):
        print_text(console, line)
    print_text(console, compare_models.elsewhere(comparison.runs[0]))


def _not_converted(converted_files: "BoardFormats") -> list[str]:
    """Return a line for each reason, with the formats that it holds for."""
    names: dict[str, list[str]] = {}
    for name, reason in converted_files.reasons.items():
        # The converter names the format that was asked of it.
        names.setdefault(reason.replace(name, "it"), []).append(name)
    return [f"{', '.join(of)}: {reason if len(of) > 1 else converted_files.reasons[of[0]]}" for reason, of in names.items()]
