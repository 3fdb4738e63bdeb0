"""Takes the pictures of the documentation: the real page of `make demo`, in Debian's chromium, light and dark, into docs/images/.

python -m tests.site.screenshots                      runs the demo first (two minutes)
python -m tests.site.screenshots report-fleet.html    of a page that is there
python -m tests.site.screenshots ledger.sqlite        of the page served while a suite is measured into that ledger; the demo's has it too
"""

import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from PIL import Image

from edgemeter.collector.index.run_index import open_index
from edgemeter.collector.index.sources import LedgerSource
from edgemeter.collector.receive.embedded_broker import EmbeddedBroker
from edgemeter.collector.receive.service import Collector
from edgemeter.collector.web.events import TrendEvents
from edgemeter.collector.web.server import PageServer
from tests.fixtures.browser import Browser, find_chromium

IMAGES = Path(__file__).resolve().parents[2] / "docs" / "images"
WIDTH = 1280
EDGEMETER = [sys.executable, "-m", "edgemeter.agent.cli.main"]
MODEL = Path(__file__).resolve().parents[2] / "models" / "shipped" / "edgemeter-shapes_int8.onnx"
# Address and height of each view.
VIEWS = {
    "overview": ("overview", 800),
    "model": ("model?model=edgemeter-shapes", 800),
    "compare": ("compare?board=simulated+Raspberry+Pi+5&model=edgemeter-shapes", 1040),
}


def take(page: Path, folder: Path) -> list[Path]:
    """Return the pictures of a page of one file, a light and a dark one of each view."""
    pictures = []
    # What the browser starts may write to its profile while it ends.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile, Browser(find_chromium(), Path(profile)) as browser:
        for name, (address, height) in VIEWS.items():
            for theme in ("light", "dark"):
                tab = browser.open(f"{page.resolve().as_uri()}#/{address}", width=WIDTH, height=height, dark=theme == "dark", offline=True)
                tab.drawn()
                pictures.append(_small(tab.screenshot(folder / f"{name}-{theme}.png")))
                assert tab.complaints() == [], tab.complaints()
    return pictures


def take_live(ledger: Path, folder: Path) -> list[Path]:
    """Return the pictures of the overview while this machine measures: a real broker, collector, run and page on a copy of the ledger."""
    pictures = []
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name, ExitStack() as stack:
        copy = Path(name) / "ledger.sqlite"
        shutil.copy(ledger, copy)
        broker = EmbeddedBroker()
        address = broker.start()
        stack.callback(broker.stop)
        collector = Collector(address, copy)
        collector.start()
        stack.callback(collector.stop)
        index = open_index(LedgerSource(copy))
        index.refresh()
        server = PageServer(index, TrendEvents())
        server.start()
        stack.callback(server.stop)
        run = subprocess.Popen(
            [*EDGEMETER, "run", str(MODEL), "--mode", "normal", "--repeats", "3", "--broker", f"{address.host}:{address.port}", "--quiet"],
            env={**os.environ, "EDGEMETER_HOME": f"{name}/home"},
        )
        stack.callback(run.wait)
        stack.callback(run.kill)
        browser = stack.enter_context(Browser(find_chromium(), Path(name) / "profile"))
        for theme in ("light", "dark"):
            tab = browser.open(server.url, width=WIDTH, height=800, dark=theme == "dark")
            tab.until("document.querySelector('#now') !== null")
            tab.drawn()
            pictures.append(_small(tab.screenshot(folder / f"now-{theme}.png")))
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
        if page_path is None:
            command = [*EDGEMETER, "demo", "--html", f"{folder}/report.html", "--home", f"{folder}/home"]
            subprocess.run(command, check=True, timeout=1200)
        page = page_path or Path(folder) / "report-fleet.html"
        IMAGES.mkdir(exist_ok=True)
        pictures = [] if page.suffix == ".sqlite" else take(page, IMAGES)
        if page_path is None or page.suffix == ".sqlite":
            pictures += take_live(page_path or Path(folder) / "home" / "ledger.sqlite", IMAGES)
        for path in pictures:
            print(path.relative_to(IMAGES.parents[1]), path.stat().st_size)


if __name__ == "__main__":
    main(sys.argv[1:])
