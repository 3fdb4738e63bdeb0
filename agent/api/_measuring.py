"""`edgemeter.measure` and `edgemeter.compare`: the commands `run` and `compare` as functions."""

import logging
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Literal

from edgemeter._environment import unset_options
from edgemeter.agent.base import config
from edgemeter.agent.base.errors import EdgemeterError
from edgemeter.agent.base.progress import quietly
from edgemeter.agent.base.run_statistics import MATTERS_RATIO
from edgemeter.agent.cli import compare_models, run_session
from edgemeter.agent.contract.record import RunRecord
from edgemeter.agent.ledger.own_runs import saving
from edgemeter.agent.session.in_turn import MeasuredInTurn

logger = logging.getLogger(__name__)

Mode = Literal["rapid", "quick", "normal", "full"]


def measure(
    model: str | Path,
    *,
    images: str | Path | None = None,
    annotations: str | Path | None = None,
    mode: Mode = "quick",
    power: str | None = None,
    save: bool = True,
    progress: bool = False,
    **settings: Any,
) -> RunRecord:
    """Measure a model once, in a process of its own, and return the record of the run.

    Args:
        model: path of the model, or its name in the catalogue.
        images: data of any kind: a folder of images or recordings, or one file; without it the model runs on random inputs and has no
            accuracy.
        annotations: ground truth of the images: COCO JSON, YOLO labels, or an index of classes.
        mode: how long: `rapid` 64 queries, `quick` 10 s, `normal` 60 s, `full` 600 s.
        power: power sensors by name (`NAME[,NAME]`), or `none`; without it the one of the widest scope, if there is one.
        save: whether the run is kept in this device's ledger too.
        progress: whether progress is shown on standard error.
        settings: any other key of a case in a suite: `runtime`, `backend`, `threads`, `scenario`, `subset`, `seed`, ...

    Returns:
        The record; absent figures are None and have a reason (`energy_reason`, `accuracy_reason`). Read `verdict` before you use them.

    Raises:
        EdgemeterError: the model, the data or a setting is wrong, or the run failed.
    """
    options = _options(settings, images=images, annotations=annotations, mode=mode, power=power)
    cases = run_session.suite_of(None, Path(model), options | {"repeats": 1})
    options |= {"save": save, "if_no_broker": "keep", "delivery_timeout": 60.0}
    with nullcontext() if progress else quietly():
        outcome = run_session.run_session(cases, options, logger.info)
    if outcome.interruption is not None:
        raise outcome.interruption
    for error in (*outcome.errors, *filter(None, [outcome.undelivered])):
        logger.warning("%s", error)
    return outcome.records[0]


def compare(
    *models: str | Path,
    images: str | Path | None = None,
    annotations: str | Path | None = None,
    mode: Mode = "quick",
    power: str | None = None,
    save: bool = True,
    runs: int = 10,
    matters_ratio: float = MATTERS_RATIO,
    progress: bool = False,
    **settings: Any,
) -> MeasuredInTurn:
    """Measure models in turn (AB BA BA AB ...) until the differences are clear, and compare each with the first.

    Args:
        models: two or more: paths, names of the catalogue, or suites (.toml) of one case.
        images: as for `measure`, and so are `annotations`, `mode`, `power`, `save` and `settings`.
        annotations: see there.
        mode: see there.
        power: see there.
        save: see there.
        runs: most runs of each; a clear result ends earlier.
        matters_ratio: smallest difference of latency and energy that matters.
        progress: as for `measure`.
        settings: see there.

    Returns:
        `sides` with the figures of each, and `contrasts`: for each but the first its `differences` and all of it as a `sentence`.

    Raises:
        EdgemeterError: as for `measure`, or no two runs can be compared.
    """
    options = _options(settings, images=images, annotations=annotations, mode=mode, power=power)
    paths = [Path(model) for model in models]
    comparison = None
    try:
        quiet = nullcontext() if progress else quietly()
        with quiet, saving(config.read(options["config"]), logger.info, is_wanted=save) as keep:
            comparison = compare_models.measure_models(paths, runs, matters_ratio, keep, options, logger.info)
    except EdgemeterError as error:
        if comparison is None:
            raise
        logger.warning("%s", error)
    return comparison


def _options(settings: dict[str, Any], **named: Any) -> dict[str, Any]:
    unknown = [key for key in settings if key not in run_session.CASE_OPTIONS]
    if unknown:
        raise TypeError(f"unexpected keyword argument {unknown[0]!r}: choose from {', '.join(sorted(run_session.CASE_OPTIONS))}")
    return {**unset_options(), **settings, **{key: value for key, value in named.items() if value is not None}}
