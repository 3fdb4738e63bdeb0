import base64
import csv
import hashlib
import io
import re
import time
from html.parser import HTMLParser

import msgspec
import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract import record_conditions
from edgemeter.collector.compare.columns import COLUMNS
from edgemeter.collector.show import report
from tests.fixtures.comparison_factory import OTHER_DATA, compare_runs, make_reference, make_run, no_energy
from tests.fixtures.record_factory import make_energy, make_environment, make_latency

VOID = {"meta", "br"}
MADE_NS = 1_760_000_000_000_000_000
HOSTILE = "</script><script>alert(1)</script><img src=http://x/y onerror=a()>\"'&\x00\x1b[2J"


class Page(HTMLParser):
    """A page taken apart: its elements, its text, and whether each element is closed by its own end."""

    def __init__(self, html):
        super().__init__()
        self.elements, self.open, self.words = [], [], []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag, attrs):
        """Note the element, and that it is open."""
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        """An end closes what was opened last."""
        assert self.open.pop() == tag

    def handle_data(self, data):
        """Note the text."""
        self.words.append(data)

    def all(self, tag):
        """Return the attributes of every element of this name."""
        return [attributes for name, attributes in self.elements if name == tag]

    @property
    def text(self):
        """Return all text, its spaces made single."""
        return " ".join("".join(self.words).split())


def page_of(*runs):
    """Return the page that compares `runs` with the reference role."""
    return report.report_page(compare_runs(*runs), "edgemeter compare --reference reference", MADE_NS)


def many_cases():
    """Return runs of 60 cases: devices, precisions, runtimes; some suspect, some without energy or accuracy."""
    suspect = record_conditions.Verdict(state="suspect", reasons=("drift: 12 %",))
    device = [
        make_run(
            device=f"board-{index % 10}",
            precision=("fp32", "fp16", "int8")[index % 3],
            runtime=("onnx", "litert")[index % 2],
            sha256=f"{index:064x}",
            p50_ms=1.5**index % 700 + 0.3,
            ap=None if index % 7 == 0 else 0.3 + index / 200,
            verdict=suspect if index % 9 == 0 else record_conditions.Verdict(state="valid"),
            **(no_energy() if index % 4 else {}),
        )
        for index in range(59)
    ]
    return [*device, make_reference()]


ODD = {
    "one run": [make_run(), make_reference()],
    "the reference alone": [make_reference()],
    "the same machine": [make_run(device="server-1"), make_reference()],
    "AP of zero": [make_run(ap=0.0), make_reference(ap=0.0)],
    "no accuracy": [make_run(ap=None), make_reference(ap=None)],
    "no energy": [make_run(**no_energy()), make_reference(**no_energy())],
    "no percentiles": [make_run(p50_ms=None, latencies_ms=[]), make_reference(p50_ms=None, latencies_ms=[])],
    "no samples": [make_run(samples=()), make_reference(samples=())],
    "nothing in common": [make_run(model="a"), make_reference(model="b")],
    "latencies that none has": [make_run(p50_ms=1e-30), make_reference(p50_ms=1e30, latencies_ms=[1e-6, 1e12])],
    "figures below zero": [
        make_run(latency=make_latency(p50_ms=-1.0, p90_ms=0.0), energy=make_energy(gross_mj=-3.0, net_mj=-5.0)),
        make_reference(energy=make_energy(gross_mj=0.0)),
    ],
    "60 cases": many_cases(),
}


@pytest.mark.parametrize("runs", ODD.values(), ids=ODD.keys())
def test_every_page_is_well_formed_and_every_number_drawn_is_one(runs):
    """Each element is closed, and no coordinate is NaN, infinite or missing."""
    html = page_of(*runs)
    page = Page(html)
    assert page.open == []
    drawn = [value for tag, attributes in page.elements if tag in {"path", "g", "text"} for value in attributes.values() if value]
    assert not [value for value in drawn if re.search(r"\b(nan|infinity|undefined|null)\b", value, re.IGNORECASE)]
    assert not re.search(r"\bnan\b", page.text, re.IGNORECASE)


def test_the_page_refers_to_nothing_outside():
    """No address, no style sheet, no font, no picture, no script from anywhere else."""
    html = page_of(*many_cases())
    page = Page(html)
    outside = [
        value
        for _, attributes in page.elements
        for name, value in attributes.items()
        if name in {"src", "href", "action", "srcset", "poster", "data"} and not (value or "").startswith(("#", "data:text/csv"))
    ]
    assert outside == []
    assert "@import" not in html
    assert set(re.findall(r"url\((.)", html)) <= {"#"}
    assert not page.all("link")
    assert not page.all("iframe")


def test_the_page_may_run_nothing_but_its_own_script():
    """Its policy names the script by hash, so that what a device sent cannot run even if it got through."""
    html = page_of(make_run(), make_reference())
    script = re.search(r"<script>(.*)</script>", html, re.DOTALL)[1]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    (policy,) = [attributes["content"] for attributes in Page(html).all("meta") if attributes.get("http-equiv")]
    assert f"script-src 'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy


def test_what_a_device_sent_stays_text_everywhere():
    """Reasons, files, boards, libraries: none becomes an element."""
    hostile = make_run(
        task=HOSTILE,
        environment=make_environment(board=HOSTILE, libraries={HOSTILE: HOSTILE}, power_mode=HOSTILE),
        verdict=record_conditions.Verdict(state="suspect", reasons=(f"{HOSTILE}: {HOSTILE}",)),
        suite=HOSTILE,
        mode=HOSTILE,
        **no_energy(HOSTILE),
    )
    hostile = msgspec.structs.replace(hostile, model=msgspec.structs.replace(hostile.model, file=HOSTILE))
    html = page_of(hostile, make_run(id=HOSTILE, data=OTHER_DATA), make_reference(task=HOSTILE))
    page = Page(html)
    assert page.open == []
    assert len(page.all("script")) == 1
    assert not page.all("img")
    assert "\x00" not in html
    assert "\x1b" not in html
    assert "alert(1)" in page.text


def test_every_link_within_the_page_leads_somewhere():
    """From the table and from each mark to the runs, and from the navigation to its section."""
    page = Page(page_of(*many_cases()))
    targets = {attributes["id"] for _, attributes in page.elements if "id" in attributes}
    links = {attributes["href"][1:] for attributes in page.all("a") if attributes.get("href", "").startswith("#")}
    assert links <= targets
    assert {f"case-{index}" for index in range(1, 61)} <= links


def test_every_run_stands_on_the_page_with_its_id():
    """Any number leads to its runs, and what is left out to its run."""
    page = Page(page_of(make_run(id="run-of-the-device"), make_run(id="left", data=OTHER_DATA), make_reference(id="run-of-the-reference")))
    assert "run-of-the-device" in page.text
    assert "run-of-the-reference" in page.text
    assert re.search(r"1 run: no reference on the same data: .*left", page.text)


def test_the_page_says_why_there_is_no_energy():
    """In the answer, in the table and in place of the chart."""
    text = Page(page_of(make_run(**no_energy("no meter")), make_reference(**no_energy("no meter")))).text
    assert "Its energy was not measured: no meter." in text
    assert "No energy: no meter" in text
    assert "No energy of pi-1, server-1: no meter." in text


def test_energy_without_accuracy_is_in_the_table_and_the_page_says_so():
    """No section is empty without a word."""
    text = Page(page_of(make_run(ap=None), make_reference(ap=None))).text
    assert "62.5 ± 1.2" in text
    assert "no device has both an energy and an accuracy to draw" in text
    assert "No accuracy of pi-1, server-1: no ground truth." in text


def test_energies_of_different_scopes_are_drawn_apart_and_the_page_says_why():
    """A wall socket's millijoules are not on a board's axis."""
    page = Page(page_of(make_run(), make_reference(energy=make_energy(scope="wall-ac"))))
    drawn = [_title(attributes) for attributes in page.all("div") if "Energy" in attributes.get("aria-label", "")]
    assert [title.rpartition(", ")[2] for title in drawn] == ["board-input"]
    assert "Energies are of different scopes or provenance (board-input; wall-ac)" in page.text


def test_a_replayed_energy_is_not_on_the_axis_of_a_measured_one():
    """Same scope, but played back: a chart of its own, which says so."""
    replayed = make_run(id="r1", device="pi-2", provenance={"latency": "measured", "energy": "replayed"})
    page = Page(page_of(make_run(), replayed, make_reference()))
    drawn = [_title(attributes) for attributes in page.all("div") if "Energy" in attributes.get("aria-label", "")]
    assert sorted(title.rpartition("board-input")[2] for title in drawn) == ["", ", replayed"]


def _title(attributes):
    return attributes["aria-label"].partition(": Up and left")[0]


def test_the_table_as_csv_is_in_the_page():
    """The figures go on without a second command."""
    page = Page(page_of(make_run(id="d"), make_reference(id="r")))
    (link,) = [attributes for attributes in page.all("a") if "download" in attributes]
    table = base64.b64decode(link["href"].partition("base64,")[2]).decode()
    rows = list(csv.DictReader(io.StringIO(table)))
    assert [row["run_ids"] for row in rows] == ["r", "d"]
    assert list(rows[0]) == [column.name for column in COLUMNS]


def test_the_page_tells_when_and_from_what_it_was_made():
    """And which versions measured."""
    text = Page(page_of(make_run(), make_reference())).text
    assert "on 2025-10-09 08:53:20 UTC" in text
    assert "edgemeter compare --reference reference" in text
    assert "onnxruntime 1.22.1, CPUExecutionProvider" in text
    assert "Raspberry Pi 5 Model B Rev 1.0" in text


def test_a_thousand_raw_samples_of_sixty_cases_stay_below_a_megabyte():
    """A page that is mailed."""
    latencies = [1 + index / 1000 for index in range(1000)]
    runs = [make_run(device=f"pi-{index}", latencies_ms=latencies) for index in range(60)]
    started = time.monotonic()
    size = len(page_of(*runs, make_reference(latencies_ms=latencies)))
    assert size < 1_000_000
    assert time.monotonic() - started < 10


def test_the_page_is_written_as_utf8_and_an_unwritable_place_is_an_error(tmp_path):
    """One line with the remedy."""
    comparison = compare_runs(make_run(), make_reference())
    report.write_report(comparison, tmp_path / "report.html", "asked")
    assert (tmp_path / "report.html").read_bytes().decode("utf-8").endswith("</html>\n")
    with pytest.raises(ConfigError, match=r"cannot write the report to .*: name another file"):
        report.write_report(comparison, tmp_path, "asked")
