"""Takes the pictures of the documentation in Debian's chromium, light and dark, into docs/images/.

python -m tests.site.screenshots                      runs the demo first (two minutes), and makes those of the README
python -m tests.site.screenshots readme               makes those of the README only: a trend of a simulated fleet
python -m tests.site.screenshots report-fleet.html    of a page that is there
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
from PIL import Image

from edgemeter.agent.contract.record import RunRecord
from edgemeter.collector.demo.simulated_fleet import records_of
from edgemeter.collector.runs.contents import oldest_first
from edgemeter.collector.runs.store import MemoryStore
from edgemeter.collector.web import one_file
from edgemeter.models.catalogue.shipped_models import write_sample
from tests.fixtures.browser import Browser, find_chromium

IMAGES = Path(__file__).resolve().parents[2] / "docs" / "images"
WIDTH = 1280
EDGEMETER = [sys.executable, "-m", "edgemeter.agent.cli.main"]
MODEL = Path(__file__).resolve().parents[2] / "models" / "shipped" / "edgemeter-shapes_int8.onnx"
# Address and height of each view.
VIEWS = {
    "overview": ("overview", 800),
    "compare": ("compare?board=simulated+Raspberry+Pi+5&model=edgemeter-shapes", 1040),
}


# Of the README: what is seen without scrolling.
README_VIEWS = {"trend": ("trend?metric=latency_p50_ms&model=edgemeter-shapes", 850)}
QUIET_P50_MS = 1.5
PICTURED = ("simulated-server", "simulated-pi5-0")


def simulated_runs(home: Path) -> list[RunRecord]:
    """Return the runs of nine boards and a server of the demo's simulated fleet, made from one run of this machine."""
    sample = home / "sample"
    write_sample(sample)
    command = [*EDGEMETER, "run", str(sample / "model.tflite"), "--data", str(sample / "photos")]
    command += ["--annotations", str(sample / "instances.json"), "--mode", "rapid", "--repeats", "1", "--format", "json"]
    completed = subprocess.run(command, env={**os.environ, "EDGEMETER_HOME": str(home)}, check=True, capture_output=True, timeout=600)
    (template,) = (msgspec.convert(run, RunRecord) for run in msgspec.json.decode(completed.stdout)["runs"])
    # As on a quiet machine: the pictures do not show how busy this one is.
    template = msgspec.structs.replace(template, latency=msgspec.structs.replace(template.latency, p50_ms=QUIET_P50_MS))
    return [run for run in records_of(template, end_ns=time.time_ns()) if run.device.startswith(PICTURED)]


def take_readme(folder: Path, runs: Sequence[RunRecord]) -> list[Path]:
    """Return the pictures of the README: the trend of simulated boards."""
    with tempfile.TemporaryDirectory() as name:
        page = Path(name) / "fleet.html"
        one_file.write_file_of(MemoryStore(oldest_first(runs)), page, one_file.FileChoice())
        return take(page, folder, README_VIEWS)


def take(page: Path, folder: Path, views: Mapping[str, tuple[str, int]] = VIEWS) -> list[Path]:
    """Return the pictures of a page of one file, a light and a dark one of each view."""
    pictures = []
    # What the browser starts may write to its profile while it ends.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile, Browser(find_chromium(), Path(profile)) as browser:
        for name, (address, height) in views.items():
            for theme in ("light", "dark"):
                tab = browser.open(f"{page.resolve().as_uri()}#/{address}", width=WIDTH, height=height, dark=theme == "dark", offline=True)
                tab.drawn()
                pictures.append(_small(tab.screenshot(folder / f"{name}-{theme}.png")))
                assert tab.complaints() == [], tab.complaints()
    return pictures


def _small(path: Path) -> Path:
    """Keep a picture in 256 colours: a third of the size, and the same to the eye."""
    with Image.open(path) as picture:
        picture.convert("RGB").quantize(256).save(path, optimize=True)
    return path


def main(arguments: list[str]) -> None:
    """Take the pictures of the page named, or of the demo's."""
    with tempfile.TemporaryDirectory() as folder:
        page_path = Path(arguments[0]) if arguments else None
        IMAGES.mkdir(exist_ok=True)
        pictures = take_readme(IMAGES, simulated_runs(Path(folder))) if arguments in ([], ["readme"]) else []
        if arguments == ["readme"]:
            return
        if page_path is None:
            command = [*EDGEMETER, "collector", "demo", "--output", f"{folder}/report.html", "--home", f"{folder}/home"]
            subprocess.run(command, check=True, timeout=1200)
        page = page_path or Path(folder) / "report-fleet.html"
        pictures += take(page, IMAGES)
        for path in pictures:
            print(path.relative_to(IMAGES.parents[1]), path.stat().st_size)


if __name__ == "__main__":
    main(sys.argv[1:])
