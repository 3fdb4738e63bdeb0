"""The demo on one machine: the shipped models measured by the real agent, delivered over a real broker, stored and compared."""

import gc
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING

from edgemeter.agent.base import config
from edgemeter.agent.base.errors import EdgemeterError, MeasurementError, TransientError, UnavailableError
from edgemeter.agent.base.progress import warn
from edgemeter.agent.base.toml import toml_document
from edgemeter.agent.machine import fingerprint
from edgemeter.collector.charts import vega
from edgemeter.collector.demo import simulated_fleet
from edgemeter.collector.demo.plan import plan_of
from edgemeter.collector.index.sources import DocumentSource
from edgemeter.collector.influx.influx_config import InfluxConfig
from edgemeter.collector.receive.embedded_broker import EmbeddedBroker
from edgemeter.collector.receive.service import Collector
from edgemeter.collector.runs.store import LedgerStore
from edgemeter.collector.web import one_file

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

DEVICE = "this-machine"
SETTLE_S = 30.0
END_S = 5.0

Reporter = Callable[[str], None]


def run_demo(
    folder: Path,
    influx: InfluxConfig | None,
    report: Reporter,
    doctor: "subprocess.Popen[bytes]",
    page: "FleetPage | None",
    *,
    run_count: int,
    delivers: bool,
) -> Path:
    """Measure and keep the runs, delivered by MQTT if it `delivers`; return the ledger. Neither `doctor` nor `page` works meanwhile.

    `folder` takes suite, outbox and ledger, which has `run_count` runs by this software.

    Raises:
        UnavailableError: no runtime is installed.
        MeasurementError: the agent failed.
        TransientError: InfluxDB did not take everything in time.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        collector = None
        options = ["--device", DEVICE, "--fleet", "demo"]
        if delivers:
            broker = EmbeddedBroker()
            address = broker.start()
            stack.callback(broker.stop)
            collector = Collector(address, folder / "ledger.sqlite", influx)
            collector.start()
            stack.callback(collector.stop)
            options += ["--broker", str(address), "--no-save"]
        plan = plan_of(doctor, run_count)
        for note in plan.left_out:
            warn(f"edgemeter: left out: {note}")
        suite, reference, of_reference = (folder / f"{name}.toml" for name in ("demo", "reference", "reference-config"))
        suite.write_text(plan.suite)
        reference.write_text(plan.reference)
        settings = config.read()
        of_reference.write_text(toml_document({"role": "reference", "power": settings.power, "sensors": settings.sensors}))
        if page is not None:
            page.wait()
        addition = f", one more of each case beside the {run_count} kept in {folder}" if plan.is_further else ""
        report(f"measuring {plan.runs} runs, each in a process of its own{addition} ...")
        _measure(suite, options, folder)
        _measure(reference, [*options, "--config", str(of_reference)], folder)
        if collector is not None and not collector.settled(SETTLE_S):
            raise TransientError(
                f"not everything was passed on within {SETTLE_S:.0f} s: {collector.trouble() or 'the ledger is still busy'}"
            )
        return folder / "ledger.sqlite"


def runs_of_this_software(ledger: Path) -> int:
    """Return how many runs the ledger has that this Python, these libraries and this Edgemeter made, invalid ones apart; 0 without one."""
    if not ledger.exists():
        return 0
    present = (fingerprint.version("edgemeter"), fingerprint.libraries())
    runs = LedgerStore(ledger).contents().runs
    return sum((run.environment.agent, run.environment.libraries) == present and run.verdict.state != "invalid" for run in runs)


def _measure(suite: Path, options: Sequence[str], folder: Path) -> None:
    agent = subprocess.Popen(
        [sys.executable, "-m", "edgemeter.agent.cli.main", "run", str(suite), *options, "--format", "json"],
        stdout=subprocess.DEVNULL,
        env={**os.environ, "EDGEMETER_HOME": str(folder)},
    )
    try:
        status = agent.wait()
    finally:
        if agent.poll() is None:
            agent.terminate()
            agent.wait()
    if status != 0:
        raise MeasurementError(f"`edgemeter run` ended with status {status}: see its message above")


class FleetPage:
    """A process that writes the page of the simulated fleet: it imports while the doctor does, waits, and ends with this one."""

    def __init__(self) -> None:
        context = get_context("spawn")
        self._pipe, child_pipe = context.Pipe()
        self._process = context.Process(target=_write_pages, args=(child_pipe,), daemon=True)
        self._process.start()
        child_pipe.close()

    def __enter__(self) -> "FleetPage":  # noqa: PYI034 - Self needs Python 3.11
        return self

    def __exit__(self, *_: object) -> None:
        self._pipe.close()
        self._process.join(END_S)
        if self.is_alive():
            self._process.kill()
            self._process.join()

    def is_alive(self) -> bool:
        """Return whether the process runs."""
        return self._process.is_alive()

    def begin(self, ledger: Path, path: Path) -> None:
        """Let it write the page of the ledger's runs and of a fleet simulated from one of them."""
        self._pipe.send((ledger, path))

    def wait(self) -> None:
        """Return when it has imported everything, so that it stands still from here on; and after `begin`, when the page is written.

        Raises:
            ConfigError: the file cannot be written.
            UnavailableError: the process has ended, or a library is not installed.
        """
        try:
            answer = self._pipe.recv()
        except EOFError as error:
            raise UnavailableError("the process that writes the page has ended: see its message above, and run the demo again") from error
        if isinstance(answer, EdgemeterError):
            raise answer


def _write_pages(pipe: "Connection") -> None:
    """Get ready, answer, and write the page that is asked for; an answer is None, or the error."""
    # Ctrl-C goes to the whole process group; the demo handles it, and closes the pipe.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # It ends with the page: looking for garbage among thousands of records takes time and finds nothing.
    gc.disable()
    with suppress(EOFError, BrokenPipeError):
        pipe.send(_attempt(vega.bundle))
        ledger, path = pipe.recv()
        pipe.send(_attempt(partial(write_demo_page, ledger, path)))


def _attempt(work: Callable[[], object]) -> EdgemeterError | None:
    try:
        work()
    except EdgemeterError as error:
        return error
    return None


def write_demo_page(ledger: Path, path: Path) -> int:
    """Write the page of the ledger's runs and of a fleet simulated from one of them; return its size in bytes.

    Raises:
        ConfigError: the file cannot be written.
    """
    measured = list(LedgerStore(ledger).contents(with_samples=True).runs)
    # The fleet is made from the run that is fp32 and scored, where there is one.
    template = max(measured, key=lambda run: (run.precision == "fp32", run.accuracy is not None, run.verdict.state == "ok"), default=None)
    simulated = simulated_fleet.records_of(template, end_ns=time.time_ns()) if template else ()
    return one_file.write_file_of(DocumentSource((*measured, *simulated)), path, one_file.FileChoice())
