"""The command `edgemeter runs why`."""

from dataclasses import asdict

import click

from edgemeter.agent.base.options import FiniteRange, json_option
from edgemeter.agent.base.tables import console_for, print_data
from edgemeter.agent.contract.kept_predictions import SHOWN_SCORE, predictions_of
from edgemeter.collector.cli.stores import ledger_option, opened_runs
from edgemeter.collector.ledgers.place import LedgerPlace


@click.command(short_help="Show what a run gets wrong or misses, or where two runs differ.")
@click.argument("run_ids", metavar="ID [ID]", nargs=-1, required=True)
@click.option(
    "--score", type=FiniteRange(0, 1), default=SHOWN_SCORE, show_default=True, help="Least score of an object that counts as found."
)
@ledger_option
@json_option('Print {"thresholds": [...], "confusion": {...}, ...}; of two runs {"counts": {...}, "photographs": [...], ...}, complete.')
def why(run_ids: tuple[str, ...], score: float, ledger: LedgerPlace | None, *, as_json: bool) -> None:
    """Show why an accuracy is what it is, from the predictions that `edgemeter run --keep-predictions` kept.

    Of one run: confusions, the best threshold of each class, and the calibration error. Of two runs on the same photographs: the objects
    that the second misses, moves or calls something else, by size and class, and the photographs in which it is worst. Of a run of frames
    at a steady rate: why they were missed, and the longest rows.

    Example: edgemeter runs why 3f2a1b9c 8c41d0aa
    """
    from edgemeter.collector.predictions.differences import differences
    from edgemeter.collector.show.prediction_tables import analysis_of, show_analysis, show_differences

    if len(run_ids) > 2:
        raise click.UsageError(f"give one run, or two to compare, not {len(run_ids)}")
    with opened_runs(ledger) as history:
        records = [history.entry(history.find(run_id), with_samples=len(run_ids) == 1).record for run_id in run_ids]
    if len(records) == 1 and (steady := records[0].steady) and records[0].predictions is None:
        from edgemeter.collector.show.missed_frames import missed_frames, show_missed_frames

        missed = missed_frames(records[0], steady)
        if not (as_json and print_data("json", {"run": records[0].id, **asdict(missed)})):
            show_missed_frames(records[0], missed, console_for(None))
        return
    predictions = [predictions_of(record) for record in records]
    if len(predictions) == 2:
        compared = differences(predictions[0], predictions[1], score)
        document = {"reference": records[0].id, "device": records[1].id, **asdict(compared)}
        if not (as_json and print_data("json", document)):
            show_differences(records, compared, console_for(None))
        return
    analysis = analysis_of(predictions[0], score)
    if not (as_json and print_data("json", {"run": records[0].id, **asdict(analysis)})):
        show_analysis(analysis, console_for(None))
