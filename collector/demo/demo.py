"""The demo measures the shipped models on one machine, and delivers and compares the runs.

The real agent measures them; they pass a real broker and are stored.
"""

import json
import logging
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from edgemeter.agent.base import config, interrupts
from edgemeter.agent.base.errors import MeasurementError, TransientError, UnavailableError
from edgemeter.agent.base.toml import toml_document
from edgemeter.collector.demo import simulated_fleet
from edgemeter.collector.receive.collector import Collector
from edgemeter.collector.receive.embedded_broker import EmbeddedBroker
from edgemeter.collector.runs.contents import oldest_first
from edgemeter.collector.runs.store import LedgerStore, MemoryStore
from edgemeter.collector.web import one_file

logger = logging.getLogger(__name__)
DEVICE = "this-machine"
SETTLE_S = 30.0


def run_demo(folder: Path, report: Callable[[str], None], *, delivers: bool) -> Path:
    """Measure and store the runs, delivered by MQTT if it `delivers`; return the ledger.

    `folder` receives suites, outbox and ledger.

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
            logger.warning("edgemeter: left out: %s", note)
        suite, reference, of_reference = (
            folder / f"{name}.toml" for name in ("demo", "reference", "reference-config")
        )
        suite.write_text(plan.suite)
        reference.write_text(plan.reference)
        settings = config.read()
        of_reference.write_text(
            toml_document(
                {"role": "reference", "power": settings.power, "sensors": settings.sensors}
            )
        )
        report(f"measuring {plan.runs} runs, each in a process of its own ...")
        _measure(suite, options, folder)
        _measure(reference, [*options, "--config", str(of_reference)], folder)
        if collector is not None and not collector.settled(SETTLE_S):
            raise TransientError(
                f"not everything was passed on within {SETTLE_S:.0f} s: the ledger is still busy"
            )
        return folder / "ledger.sqlite"


def _measure(suite: Path, options: Sequence[str], folder: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "edgemeter.agent.cli.main",
        "run",
        str(suite),
        *options,
        "--format",
        "json",
    ]
    agent = None
    try:
        with interrupts.deferred():
            agent = subprocess.Popen(
                command,
                stdout=subprocess.DEVNULL,
                env={**os.environ, "EDGEMETER_HOME": str(folder)},
            )
        status = interrupts.wait(agent)
    finally:
        if agent is not None and agent.poll() is None:
            agent.terminate()
            agent.wait()
    if status != 0:
        raise MeasurementError(f"`edgemeter run` ended with status {status}: see its message above")


def write_demo_page(ledger: Path, path: Path) -> int:
    """Write the page of the ledger's runs and of a simulated fleet; return its size in bytes.

    The fleet is simulated from one of the runs.

    Raises:
        ConfigError: the file cannot be written.
    """
    measured = list(LedgerStore(ledger).contents(with_samples=True).runs)
    # The fleet is made from a scored fp32 run, if there is one.
    template = max(
        measured,
        key=lambda run: (
            run.precision == "fp32",
            run.accuracy is not None,
            run.verdict.state == "ok",
        ),
        default=None,
    )
    simulated = simulated_fleet.records_of(template, end_ns=time.time_ns()) if template else ()
    return one_file.write_file_of(
        MemoryStore(oldest_first((*measured, *simulated))), path, one_file.FileChoice()
    )


READS = {"litert": (".tflite",), "onnx": (".onnx",), "pytorch": (".torchscript", ".pt", ".pt2")}
DOCTOR_LIMIT_S = 60.0


@dataclass(frozen=True, slots=True)
class DemoPlan:
    """The plan of the demo: the suites of the device and of its reference as text.

    It also has the models whose runtime is not installed.
    """

    suite: str
    reference: str
    left_out: tuple[str, ...]
    runs: int


def plan_of_this_machine() -> DemoPlan:
    """Return the plan for the runtimes that the doctor finds.

    Each case is measured three times, or once with a power sensor.

    Raises:
        MeasurementError: the doctor failed.
        UnavailableError: no runtime is installed, or the shipped models are not here.
    """
    try:
        doctor = subprocess.run(
            [sys.executable, "-m", "edgemeter.agent.doctor"],
            check=False,
            capture_output=True,
            timeout=DOCTOR_LIMIT_S,
        )
        findings: list[dict[str, str]] = json.loads(doctor.stdout)["findings"]
    except subprocess.TimeoutExpired as error:
        raise MeasurementError(
            f"`edgemeter doctor` did not end within {DOCTOR_LIMIT_S:.0f} s: run it alone to see "
            "where it stops"
        ) from error
    except (ValueError, KeyError) as error:
        raise MeasurementError(
            f"`edgemeter doctor` failed: {doctor.stderr.decode(errors='replace').strip()[-300:]}"
        ) from error
    return _plan(findings)


def _plan(findings: Sequence[dict[str, str]]) -> DemoPlan:
    by_name = {finding["name"]: finding for finding in findings}
    runtimes = [name for name in READS if by_name.get(name, {}).get("state") == "ok"]
    shipped = [
        card.with_suffix("")
        for data_folder in _places()
        for card in sorted((data_folder / "shipped").glob("*.toml"))
    ]
    if not shipped:
        raise UnavailableError("the shipped models are not here: install edgemeter from its wheel")
    if not runtimes:
        raise UnavailableError(
            "no runtime is installed: `pip install 'edgemeter[litert,onnx]'`, then run "
            "the demo again"
        )
    left_out = tuple(
        (
            f"{path.name}: {by_name.get(name, {}).get('what', name)} "
            f"({by_name.get(name, {}).get('remedy') or 'install it'})"
        )
        for path in shipped
        for name, suffixes in READS.items()
        if path.name.endswith(suffixes) and name not in runtimes
    )
    models = [path for path in shipped if any(path.name.endswith(READS[name]) for name in runtimes)]
    fp32 = next(
        (path for path in models if "fp32" in path.name and path.suffix == ".onnx"), models[0]
    )
    has_power = any(finding["area"] == "power" and finding["state"] == "ok" for finding in findings)
    language: list[Path] = []
    if by_name.get("llama", {}).get("state") == "ok":
        # The shipped language model in 16 and in 4 bits.
        files = (
            path
            for data_folder in _places()
            for path in sorted((data_folder / "language").glob("*.gguf"))
        )
        language = [path for path in files if path.stem.endswith(("f16", "q4_0"))]
    repeats = 1 if has_power else 3
    suite = _suite("demo", models, language, repeats, has_power=has_power)
    reference = _suite("reference", [fp32], (), repeats, has_power=has_power)
    return DemoPlan(suite, reference, left_out, repeats * (len(models) + 1 + len(language)))


def _suite(
    name: str, models: Sequence[Path], language: Sequence[Path], repeats: int, *, has_power: bool
) -> str:
    scenes = models[0].parent.parent / "scenes"
    # A sensor needs 10 s or more for an energy; without one, the mode's queries are enough for a
    # p99.
    lasting = "seconds = 10.2\nidle_seconds = 2.0" if has_power else "seconds = 0.5"
    length = f'mode = "normal"\n{lasting}\nrepeats = {repeats}'
    # The case that generates text; its queries have many steps, so there are few.
    generated = (
        f"model = {json.dumps([str(path) for path in language])}\nprompt_tokens = 64\n"
        "output_tokens = 32\n"
    )
    return f"""\
# Written by `edgemeter collector demo`; run it again with `edgemeter run {name}.toml`.
name = "{name}"

[defaults]
{length}
data = {json.dumps(str(scenes / "images"))}
annotations = {json.dumps(str(scenes / "annotations.json"))}

[[case]]
model = {json.dumps([str(path) for path in models])}
""" + (f"\n[[case]]\n{generated}" if language else "")


def _places() -> list[Path]:
    """Return the folders with the data of the package `models`, whose code stays where it is."""
    package = find_spec("edgemeter.models")
    return (
        [Path(location) for location in package.submodule_search_locations or ()] if package else []
    )
