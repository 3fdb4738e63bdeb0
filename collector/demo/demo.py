"""The demo on one machine: the shipped models measured by the real agent, delivered over a real broker, stored and compared."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

from edgemeter.agent.base import config
from edgemeter.agent.base.errors import MeasurementError, TransientError
from edgemeter.agent.base.progress import warn
from edgemeter.agent.base.toml import toml_document
from edgemeter.collector.demo import simulated_fleet
from edgemeter.collector.demo.plan import plan_of_this_machine
from edgemeter.collector.receive.collector import Collector
from edgemeter.collector.receive.embedded_broker import EmbeddedBroker
from edgemeter.collector.runs.contents import oldest_first
from edgemeter.collector.runs.store import LedgerStore, MemoryStore
from edgemeter.collector.web import one_file

DEVICE = "this-machine"
SETTLE_S = 30.0


def run_demo(folder: Path, report: Callable[[str], None], *, delivers: bool) -> Path:
    """Measure and keep the runs, delivered by MQTT if it `delivers`; return the ledger. `folder` takes suites, outbox and ledger.

    Raises:
        UnavailableError: no runtime is installed.
        MeasurementError: the agent failed.
        TransientError: the collector did not store everything in time.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        collector = None
        options = ["--device", DEVICE, "--fleet", "demo"]
        if delivers:
            broker = EmbeddedBroker()
            address = broker.start()
            stack.callback(broker.stop)
            collector = Collector(address, folder / "ledger.sqlite")
            collector.start()
            stack.callback(collector.stop)
            options += ["--broker", str(address), "--no-save"]
        plan = plan_of_this_machine()
        for note in plan.left_out:
            warn(f"edgemeter: left out: {note}")
        suite, reference, of_reference = (folder / f"{name}.toml" for name in ("demo", "reference", "reference-config"))
        suite.write_text(plan.suite)
        reference.write_text(plan.reference)
        settings = config.read()
        of_reference.write_text(toml_document({"role": "reference", "power": settings.power, "sensors": settings.sensors}))
        report(f"measuring {plan.runs} runs, each in a process of its own ...")
        _measure(suite, options, folder)
        _measure(reference, [*options, "--config", str(of_reference)], folder)
        if collector is not None and not collector.settled(SETTLE_S):
            raise TransientError(f"not everything was passed on within {SETTLE_S:.0f} s: the ledger is still busy")
        return folder / "ledger.sqlite"


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


def write_demo_page(ledger: Path, path: Path) -> int:
    """Write the page of the ledger's runs and of a fleet simulated from one of them; return its size in bytes.

    Raises:
        ConfigError: the file cannot be written.
    """
    measured = list(LedgerStore(ledger).contents(with_samples=True).runs)
    # The fleet is made from the run that is fp32 and scored, where there is one.
    template = max(measured, key=lambda run: (run.precision == "fp32", run.accuracy is not None, run.verdict.state == "ok"), default=None)
    simulated = simulated_fleet.records_of(template, end_ns=time.time_ns()) if template else ()
    return one_file.write_file_of(MemoryStore(oldest_first((*measured, *simulated))), path, one_file.FileChoice())
