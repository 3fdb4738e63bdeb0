"""Facts about the cold start: process, import, load and first query.

Each is compared with a clock of its own in a library that the tests slow down.
"""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from edgemeter.agent.contract.record import RunRecord
from edgemeter.agent.engine import isolation
from edgemeter.agent.sandbox.run_grant import grant_for
from edgemeter.agent.session import session
from tests.fixtures.suite_files import read_suite

MODELS = Path(__file__).parents[2] / "fixtures" / "runtimes"
# Stands before the real library on the path of the measuring process: it does nothing, slowly, and
# writes down when.
LIBRARY = """
import json, os, time

MARKS = {"import_begins": time.monotonic_ns()}
time.sleep(0.25)
MARKS["import_ends"] = time.monotonic_ns()
import numpy as np


class OpResolverType:
    AUTO = BUILTIN_REF = BUILTIN_WITHOUT_DEFAULT_DELEGATES = 0


class Interpreter:
    def __init__(self, **settings):
        MARKS["load_begins"] = time.monotonic_ns()
        time.sleep(0.15)
        self.calls = 0

    def allocate_tensors(self):
        MARKS["load_ends"] = time.monotonic_ns()

    def _details(self, name):
        return [{
            "name": name, "index": 0, "shape": np.array([1, 2]),
            "shape_signature": np.array([1, 2]), "dtype": np.float32,
            "quantization_parameters": {"scales": [], "zero_points": []},
        }]

    def get_input_details(self):
        return self._details("x")

    def get_output_details(self):
        return self._details("y")

    def _get_ops_details(self):
        return []

    def set_tensor(self, index, value):
        pass

    def get_tensor(self, index):
        return np.ones((1, 2), np.float32)

    def invoke(self):
        begin = time.monotonic_ns()
        time.sleep(0.1 if self.calls == 0 else 0.005)
        if self.calls == 0:
            MARKS["first_begins"], MARKS["first_ends"] = begin, time.monotonic_ns()
            with open(os.environ["PYTHON_COLD_START_MARKS"], "w") as file:
                json.dump(MARKS, file)
        self.calls += 1
"""
# Python imports this module by itself when it starts.
STARTING = """
import time
time.sleep(0.2)
"""


@pytest.fixture
def measured(tmp_path, monkeypatch):
    """Return a function that measures with the slow library.

    It returns the record and the times that the library wrote down.
    """
    package = tmp_path / "path" / "ai_edge_litert"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "interpreter.py").write_text(LIBRARY)
    (tmp_path / "path" / "sitecustomize.py").write_text(STARTING)
    marks = tmp_path / "marks.json"
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "path"))
    monkeypatch.setenv("PYTHON_COLD_START_MARKS", str(marks))
    model = MODELS / "litert.tflite"
    suite = tmp_path / "suite.toml"
    suite.write_text(f'name = "cold"\n[[case]]\nmodel = "{model}"\nmode = "rapid"\nrepeats = 1\n')

    # It writes down its times outside, which a sandboxed process may not.
    monkeypatch.setattr(
        isolation, "grant_for", lambda case: replace(grant_for(case), write=(tmp_path,))
    )

    def measure():
        (record,) = session.measure(
            read_suite(suite), session.DeviceIdentity("bench", "lab"), {}, "none", lambda _: None
        )
        assert isinstance(record, RunRecord), record
        return record, json.loads(marks.read_text())

    return measure


@pytest.mark.services
def test_each_part_of_the_cold_start_is_its_own(measured):
    """Each part lasts as long as by the library's own clock, and includes no other.

    All four fit between the start and the first answer.
    """
    record, marks = measured()
    cold = record.cold_start
    for part, found_ms in (
        ("import", cold.import_ms),
        ("load", cold.load_ms),
        ("first", cold.first_ms),
    ):
        own_ms = (marks[f"{part}_ends"] - marks[f"{part}_begins"]) / 1e6
        assert own_ms <= found_ms, part
    # Python's own start, before our first line.
    assert cold.process_ms >= 200
    assert record.monotonic_ns + cold.process_ms * 1e6 <= marks["import_begins"]
    whole_ms = (marks["first_ends"] - record.monotonic_ns) / 1e6
    assert cold.process_ms + cold.import_ms + cold.load_ms + cold.first_ms <= whole_ms + 1
