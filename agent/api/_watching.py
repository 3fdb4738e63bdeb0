"""`edgemeter.watch`: the calls that a program makes, timed as it makes them."""

import logging
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import partial
from typing import ParamSpec, TypeVar

from edgemeter._environment import unset_options
from edgemeter._measuring import keeping
from edgemeter.agent.contract.record import RunRecord
from edgemeter.agent.engine import isolation, job
from edgemeter.agent.engine.call_trial import FunctionCall
from edgemeter.agent.engine.in_process import ProgramCalls, measure_program
from edgemeter.agent.session import in_process

logger = logging.getLogger(__name__)
P = ParamSpec("P")
T = TypeVar("T")


class WatchedCalls:
    """Times calls within the block: `watch(function, ...)`; `record` is the run, set when the block has ended."""

    record: RunRecord | None = None

    def __init__(self) -> None:
        self._calls = ProgramCalls()

    def __call__(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call the function and return what it returns, once its results are there."""
        return self._calls.time(function, *args, **kwargs)


@contextmanager
def watch(name: str, *, power: str | None = None, save: bool = True) -> Iterator[WatchedCalls]:
    """Time calls as a program makes them, within a block: `watch(decode, frame)`; `record` is the run when the block has ended.

    The first call is the cold start, all others are timed; nothing is repeated. Other runs on this board wait for the end of the block.

    Args:
        name: name of the case.
        power: power sensors by name (`NAME[,NAME]`), or `none`; without it the one of the widest scope.
        save: whether the run is kept in this device's ledger.

    Raises:
        EdgemeterError: fewer than two calls were timed, or a sensor is absent.
    """
    watched = WatchedCalls()
    begins, ended = threading.Event(), threading.Event()
    options = unset_options()
    options |= {"power": power or options["power"]}
    target = FunctionCall(watched, ())
    case = in_process.case_of(target, {"name": name})

    def execute(work: job.RunJob, follow: isolation.Follow) -> job.MeasuredRun:
        return measure_program(work, watched._calls, begins, ended, lambda event: follow(event, os.getpid()))  # noqa: SLF001

    with ThreadPoolExecutor(1, "edgemeter.watch") as pool:
        run = pool.submit(partial(in_process.measure_function, target, case, options, logger.warning, execute=execute))
        run.add_done_callback(lambda _: begins.set())
        begins.wait()
        if run.done():
            run.result()
        try:
            yield watched
        finally:
            ended.set()
            wait([run])
    (record,) = run.result()
    with keeping(save=save) as keep:
        watched.record = keep(record)
