# ruff: noqa: ARG002 - a plug-in that ignores what it is given
"""Each check that ships finds a plug-in that breaks its promise: one of every family that breaks all of them."""

import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from PIL import Image

from edgemeter.agent import datasets, power, runtimes, tasks
from edgemeter.agent.conformance import decoders as of_decoders
from edgemeter.agent.conformance import readers as of_readers
from edgemeter.agent.conformance import runtimes as of_runtimes
from edgemeter.agent.conformance import sensors as of_sensors
from edgemeter.agent.conformance import tasks as of_tasks
from edgemeter.agent.conformance.promise import ContractViolationError
from edgemeter.agent.contract.record_accuracy import Accuracy
from edgemeter.agent.datasets import GroundTruth, Targets
from edgemeter.agent.datasets.dataset import open_folder
from edgemeter.agent.power import Description, Reading
from edgemeter.agent.runtimes import Loaded, TensorInfo
from edgemeter.agent.vision import decoders
from edgemeter.agent.vision.decoders import Detections
from tests.fixtures.vision_factory import make_card, make_loaded, same_size, tensors

X = np.array([[1, 2, 3]], np.float32)
# What this one fails with where it need not be dressed up.
FOREIGN = (KeyError,)


class Careless:
    """Breaks every promise of every family."""

    takes_invalid = True

    def __init__(self, *arguments, **settings):
        self.given, self.closed, self.calls = arguments, False, 0

    def load(self, model, options):
        """Take any file, any option and an absent library."""
        return Loaded("", "", "", (TensorInfo("", (1, 3), "float32"),), (), {}, 0, 0)

    def bind(self, inputs):
        """Keep the caller's arrays."""
        Careless.kept = inputs[0] if inputs else X
        return lambda: None

    def outputs(self):
        """Return one's own array."""
        return [Careless.kept]

    def close(self):
        """Fail the second time."""
        if self.closed:
            raise KeyError("closed")
        self.closed = True

    def describe(self):
        """Return a scope that there is not, whatever is here."""
        return Description("", "the moon", (), "power", 0, None, None)

    def read(self, *_given):
        """Return numbers out of nothing; of a reader, files out of nothing."""
        self.calls += 1
        if _given:
            return GroundTruth(Targets({"a.png": 1, "made up": 2}), b"")
        return Reading(taken_ns=-self.calls, power_w=float("nan"))

    @staticmethod
    def recognises(*_given) -> bool:
        """Return that everything is its own."""
        return True

    def decode(self, outputs, frame):
        """Change the outputs, and remember how often."""
        outputs[0][:] = 7
        self.calls += 1
        return Detections(np.full((1, 4), np.nan), np.full(1, self.calls, float), np.zeros(1, int))

    def prepare(self, index):
        """Return what no model takes."""
        return [{}]

    def predict(self, index, calls):
        """Return no scores."""
        self.calls += 1

    def same_predictions(self, index, calls, other):
        """Return that nothing is the same, and keep it."""
        self.calls += 1
        return 0.0

    def score(self, parts="all"):
        """Make an accuracy up."""
        value = float("nan") if parts == "all" else 0.5
        return Accuracy(metric="", value=value, images=9, dataset_sha256="0" * 64)


@pytest.fixture
def careless(monkeypatch):
    """Register it under the name `careless` in every family."""
    for table in (runtimes.RUNTIMES, power.SENSORS, decoders.DECODERS, tasks.TASKS, datasets.READERS):
        monkeypatch.setitem(table, "careless", f"{__name__}:Careless")


def cases(tmp_path):
    """Return a case of each family, by the module of its checks."""
    Image.new("RGB", (8, 8)).save(tmp_path / "a.png")
    (tmp_path / "index.csv").write_text("a.png,1\n")
    (tmp_path / "model").write_bytes(bytes(100))
    (tmp_path / "tree" / "sys").mkdir(parents=True)
    (tmp_path / "tree" / "sys" / "power").write_text("1\n")
    loaded = make_loaded(tensors((1, 3)), [TensorInfo("x", (1, 8, 8, 3), "float32")])
    detected = Detections(np.zeros((1, 4), np.float32), np.ones(1, np.float32), np.zeros(1, np.int32))
    return {
        of_runtimes: of_runtimes.RuntimeCase("careless", tmp_path / "model", (X,), (2 * X,), libraries=("colorsys",)),
        of_sensors: of_sensors.SensorCase("careless", tmp_path / "tree"),
        of_decoders: of_decoders.DecoderCase(make_card("careless"), loaded, (X,), same_size(), detected),
        of_tasks: of_tasks.TaskCase(make_card("x", "careless"), loaded, open_folder(tmp_path, tmp_path / "index.csv"), ((X,),)),
        of_readers: of_readers.ReaderCase("careless", tmp_path, tmp_path / "index.csv", ("a.png",)),
    }


EVERY = [(family, check) for family in (of_runtimes, of_sensors, of_decoders, of_tasks, of_readers) for check in family.CHECKS]
# Kept by doing nothing; refused before the sensor is asked; asked of another process, which is tested below.
KEPT = {
    of_sensors.constructing_touches_nothing,
    of_sensors.an_unknown_setting_is_refused,
    of_runtimes.constructing_imports_no_library,
}


@pytest.mark.parametrize(
    ("family", "check"), [pair for pair in EVERY if pair[1] not in KEPT], ids=lambda pair: pair.__name__.rpartition(".")[2]
)
@pytest.mark.usefixtures("careless")
def test_a_check_finds_a_plug_in_that_breaks_its_promise(family, check, tmp_path):
    """A check that cannot fail proves nothing."""
    (tmp_path / "case").mkdir()
    (tmp_path / "empty").mkdir()
    case = cases(tmp_path / "case")[family]
    with pytest.raises((ContractViolationError, *FOREIGN)):
        check(case, tmp_path / "empty")


def test_a_runtime_that_imports_its_library_too_early_is_found(tmp_path):
    """Ours import msgspec at the top, which is no library of a runtime."""
    case = of_runtimes.RuntimeCase("replay", tmp_path, (X,), (X,), libraries=("msgspec",))
    with pytest.raises(ContractViolationError, match="constructing imports msgspec"):
        of_runtimes.constructing_imports_no_library(case, tmp_path)


def test_the_checks_need_no_test_framework():
    """They ship in the base install, which has none."""
    modules = ", ".join(f"edgemeter.agent.conformance.{name}" for name in ("decoders", "readers", "runtimes", "sensors", "tasks"))
    code = f"import sys, {modules}; print('pytest' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


class Misscaled:
    """A sensor of a board that draws 5 W, with its figures multiplied: power, energy, the counter's present power, its resolution."""

    def __init__(self, world=None, *, kind="power", power=1.0, energy=1.0, resolution=0.001):
        self._kind, self._power, self._energy, self._resolution = kind, power, energy, resolution
        self._counted_mj = 0.0

    def describe(self):
        """Return a board's input, in steps of mW or mJ."""
        steps = {"resolution_w": self._resolution} if self._kind == "power" else {"resolution_mj": 1000 * self._resolution}
        return Description("misscaled", "board-input", (), self._kind, 100.0, **steps)

    def read(self):
        """Return 5 W, or a counter a second later."""
        self._counted_mj += 5000.0
        return Reading(1, 5.0 * self._power, self._counted_mj * self._energy if self._kind == "energy" else None)

    def close(self):
        """Hold nothing."""


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({}, None),
        ({"kind": "energy"}, None),
        ({"power": 1e3}, "reads 5000 W"),
        ({"power": 1e-3}, "reads 0.005 W"),
        ({"resolution": 10.0}, "resolution"),
        ({"kind": "energy", "energy": 1e3}, "counts 5e\\+06 mJ in 1 s, 5000 W"),
        ({"kind": "energy", "energy": 1e-3}, "counts 5 mJ in 1 s, 0.005 W"),
        ({"kind": "energy", "power": 1e3}, "reads 5000 W"),
    ],
)
def test_a_sensor_that_is_off_by_a_thousand_is_found(wrong, words, tmp_path):
    """In either direction, in each of its figures; the right ones are not accused."""
    for folder in ("recording", "case"):
        (tmp_path / folder).mkdir()
    case = of_sensors.SensorCase("misscaled", tmp_path / "recording", opens=lambda _: Misscaled(**wrong), later=lambda _: 1.0)
    if words is None:
        of_sensors.figures_are_in_watts_and_millijoules(case, tmp_path / "case")
    else:
        with pytest.raises(ContractViolationError, match=words):
            of_sensors.figures_are_in_watts_and_millijoules(case, tmp_path / "case")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"reads_w": (0.1, 100.0)}, "less than 1000 times apart"),
        ({"reads_w": (4.0, 4.4)}, "4 to 4.4 W are expected"),
        ({"later": None}, "give the case `later`"),
    ],
)
def test_a_case_by_which_no_unit_can_be_judged_is_refused(changes, words, tmp_path):
    """A range as wide as the fault, and a counter that is read once; a narrower range than the scope's judges closer."""
    for folder in ("recording", "case"):
        (tmp_path / folder).mkdir()
    settings = {"opens": lambda _: Misscaled(kind="energy"), "later": lambda _: 1.0, **changes}
    with pytest.raises(ContractViolationError, match=words):
        of_sensors.figures_are_in_watts_and_millijoules(
            of_sensors.SensorCase("misscaled", tmp_path / "recording", **settings), tmp_path / "case"
        )


class Elsewhere:
    """A runtime that doubles its input, where `at` says: when bound, in a thread that the call starts, in the call, or for `outputs`."""

    at = "call"

    def load(self, _model, _options):
        """Load nothing."""

    def bind(self, inputs):
        """Return the call."""
        self._output, self._worker, self._compute = np.zeros_like(inputs[0]), None, None

        def compute():
            time.sleep(0.01)
            self._output = 2 * inputs[0]

        def start():
            self._worker = threading.Thread(target=compute)
            self._worker.start()

        if self.at == "bind":
            compute()

        def postpone():
            self._compute = compute

        return {"bind": lambda: None, "thread": start, "call": compute, "outputs": postpone}[self.at]

    def outputs(self):
        """Return the result, once it is there."""
        if self._worker is not None:
            self._worker.join()
        if self._compute is not None:
            self._compute()
        return [self._output.copy()]

    def close(self):
        """Hold nothing."""


@pytest.mark.parametrize(
    ("at", "words"),
    [("bind", "bind computes nothing"), ("thread", "the call waits"), ("outputs", "outputs compute nothing"), ("call", None)],
)
def test_a_runtime_that_works_outside_its_call_is_found(at, words, tmp_path, monkeypatch):
    """Before the call, or after it has returned."""
    monkeypatch.setitem(runtimes.RUNTIMES, "elsewhere", f"{__name__}:Elsewhere")
    monkeypatch.setattr(Elsewhere, "at", at)
    case = of_runtimes.RuntimeCase("elsewhere", tmp_path, (X,), (2 * X,))
    if words is None:
        of_runtimes.the_call_does_the_work(case, tmp_path)
    else:
        with pytest.raises(ContractViolationError, match=words):
            of_runtimes.the_call_does_the_work(case, tmp_path)
