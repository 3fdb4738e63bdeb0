"""Facts about the suite of the study of eight detectors: one cell of it, measured as its user would."""

import json
import re
import shutil
from contextlib import suppress
from pathlib import Path

import pytest

from edgemeter.agent.contract.suite import DETECTOR_STUDY
from edgemeter.agent.power.um25c import ASK
from tests.benchmarks.detectors import photographs
from tests.fixtures.command import edgemeter
from tests.fixtures.ml_server import serving
from tests.fixtures.power.make_usb_meters import um25c_block
from tests.fixtures.serial_port import PlayedPort

pytestmark = [
    pytest.mark.realdata, pytest.mark.mlserver, pytest.mark.nightly,
    *(pytest.mark.needs(module=name) for name in ("onnxruntime", "pycocotools", "serial")),
]  # fmt: skip
MODEL = "yolov8n"
VOLTS, IDLE_A, BUSY_A = 5.12, 0.6, 1.4


# The page of the study is CC BY-NC-SA: this row is made up.
class ServersMeter(PlayedPort):
    """A meter in the feed of a board that draws more while the server, whose folder is given, computes."""

    def __init__(self, folder):
        super().__init__(ASK, [b""])
        self._folder, self._ticks = folder, 0

    def _reply(self):
        ticks = sum(map(ticks_of, (path.parent for path in Path("/proc").glob("[0-9]*/cwd") if runs_in(path, self._folder))))
        self._replies, self._ticks = [um25c_block(VOLTS, BUSY_A if ticks > self._ticks + 5 else IDLE_A)], ticks
        super()._reply()


def runs_in(link, folder):
    """Return whether a process works in the folder."""
    with suppress(OSError):
        return link.readlink() == folder
    return False


def ticks_of(process):
    """Return the clock ticks of a process on any core, 0 of one that has ended."""
    with suppress(OSError):
        return sum(map(int, (process / "stat").read_text().rpartition(")")[2].split()[11:13]))
    return 0


@pytest.fixture(scope="module")
def home(realdata, tmp_path_factory):
    """Return a folder with the record of the cell and what was printed: shorter, with fewer photographs, else as it ships."""
    folder = tmp_path_factory.mktemp("study")
    shutil.copy(realdata / "models" / f"{MODEL}.onnx", folder)
    images, annotations = photographs()
    text = DETECTOR_STUDY.read_text().replace('"val2017"', f'"{images}"').replace('"instances_val2017.json"', f'"{annotations}"')
    text = re.sub(r"\n\[\[case\]\].*", f'subset = 4\n\n[[case]]\nmodel = "{MODEL}.server"\n', text, flags=re.DOTALL)
    short = (
        text.replace('"normal"', '"rapid"').replace("repeats = 3", "repeats = 1").replace("300.0", "15.0\nqueries = 100\nseconds = 51.0")
    )
    (folder / "suite.toml").write_text(short)
    tensors = {"images": (1, 3, 640, 640)}, {"output0": (1, 84, 8400)}
    with serving(folder / f"{MODEL}.onnx", *tensors, folder / "served") as address, ServersMeter(folder / "served") as port:
        (folder / f"{MODEL}.server").write_text(f'url = "{address}"\nprotocol = "oip"\n')
        (folder / "agent.toml").write_text(f'[sensors.um25c]\nport = "{port.name}"\n')
        measured = edgemeter(
            "run", "suite.toml", "--power", "um25c", "--config", "agent.toml", "--output", "runs.json", "--no-save", cwd=folder
        )
    assert measured.returncode == 0, measured.stderr
    return folder


def test_a_cell_is_measured_over_http_with_the_meter_of_the_study(home):
    """The server's model, photograph by photograph; the energy of all that the meter sees, and a base from before and after."""
    (record,) = json.loads((home / "runs.json").read_text())["runs"]
    assert (record["runtime"]["name"], record["runtime"]["package"], record["model"]["name"]) == ("served", "mlserver", MODEL)
    assert record["accuracy"]["metric"] == "coco_ap"
    energy = record["energy"]
    assert energy["sensor"].startswith("um25c:UM25C")
    assert energy["scope"] == "board-input"
    mean_ms = record["latency"]["mean_ms"]
    assert energy["gross_mj"] == pytest.approx(VOLTS * BUSY_A * mean_ms, rel=0.1)
    assert energy["net_mj"] == pytest.approx(VOLTS * (BUSY_A - IDLE_A) * mean_ms, rel=0.2)
