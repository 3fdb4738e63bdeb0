import csv
import io
import json
import re
import time

import pytest

from edgemeter.agent.contract import record_conditions
from edgemeter.agent.contract.health import Sensor
from edgemeter.agent.ledger.presence import PresenceChange
from edgemeter.collector.compare import columns
from edgemeter.collector.web import run
from edgemeter.collector.web.queries import CaseFilter, compare, picked_cases
from edgemeter.collector.web.side_by_side import compare_view
from edgemeter.collector.web.view import ViewRequest
from tests.fixtures.comparison_factory import compare_runs, make_reference, make_run
from tests.fixtures.health_factory import make_health
from tests.fixtures.ledgers import fill, report
from tests.fixtures.record_factory import make_environment, make_generation, make_generation_energy
from tests.fixtures.served_page import page_of, text_of, view_context

DAY_NS = 86_400 * 10**9
MODES = {"15W": 12.0, "25W": 10.0}


def answers(runs, *addresses):
    page = page_of(runs)
    texts = [text_of(page, f"/{address}") for address in addresses]
    return texts[0] if len(texts) == 1 else texts


def rows_of(text):
    return list(csv.DictReader(io.StringIO(text)))


def charts_in(text):
    """Return the data of a page's charts, in order."""
    return [json.loads(data) for data in re.findall(r'class="chart-data">(.*?)</script>', text)]


def test_the_page_of_a_run_has_every_field_of_its_conditions_in_words():
    """The busiest processes are there too."""
    assert set(run.FIELDS) == set(record_conditions.Condition.__struct_fields__) - {"when"}
    busiest = {"make": 0.25}
    around = record_conditions.Condition(
        when="before", temperatures_c={"soc": 61.3}, busiest_other=busiest
    )
    text = answers((make_run(id="told", conditions=(around,)), make_reference()), "run?id=told")
    visible = text.partition("The record as JSON")[0]
    for word in ("soc 61.3 °C", "make, 25.0%"):
        assert word in visible, word
    assert "busiest_other" not in visible


def test_the_device_of_a_fleet_is_its_first():
    """This is the device if none was picked; a fleet without runs has a page that says so."""
    runs = [make_run(), make_run(id="b", device="pi-9", fleet="field"), make_reference()]
    field, first, absent = answers(runs, "device?fleet=field", "device", "device?fleet=nosuch")
    assert ["pi-9" in field, "pi-1" in first, "No run has this device" in absent] == [
        True,
        True,
        True,
    ]


def test_a_language_model_has_the_figures_of_the_field_on_every_page():
    """A case, a run and a device show neither the latency nor the energy of a whole call.

    The figures of a case are as in the terminal.
    """
    generation = make_generation(energy=make_generation_energy())
    runs = [
        make_run(id="generated", generation=generation, ap=None),
        make_reference(generation=generation, ap=None),
    ]
    comparison, run, device = answers(runs, "compare", "run?id=generated", "device?device=pi-1")
    headings = re.findall(r"<th [^>]*>([^<]+)</th>", comparison.partition("<tbody>")[0])
    assert headings[3:] == [
        "TTFT ms",
        "TPOT ms",
        "pp 512 t/s",
        "tg 11 t/s",
        "J/token",
        "memory MB",
        "Runs",
    ]
    for word in (
        "<dt>pp 512</dt><dd>5,120 t/s</dd>",
        "<dt>tg 11</dt><dd>100 t/s</dd>",
        "<dt>TTFT, p50</dt>",
        "2.00 J/token",
    ):
        assert word in run, word
    assert "Failed queries" not in run
    assert set(re.findall(r"(TTFT|TPOT|p50|energy) m[sJ]", json.dumps(charts_in(device)))) == {
        "TTFT",
        "TPOT",
    }


def test_a_case_has_the_accuracy_and_the_energy_of_its_earlier_runs_as_in_the_command():
    """The newest run has neither, its case has both.

    A suite scores its first run only, and a meter was unplugged.
    """
    first = make_run(id="first")
    later = make_run(
        id="later",
        started_at_ns=first.started_at_ns + 10**9,
        accuracy=None,
        energy=None,
        reasons={"accuracy": "not requested", "energy": "unplugged"},
    )
    runs = (make_reference(), first, later)
    context = view_context(runs)
    rows = compare_view(context, ViewRequest("compare"), CaseFilter()).tables[0].dicts()
    comparison = compare(
        context, picked_cases(context.book, CaseFilter()), CaseFilter(), "reference"
    )
    assert columns.to_json(comparison) == columns.to_json(compare_runs(*runs))
    (row,) = (row for row in rows if row["device"] == "pi-1")
    energy = first.energy
    assert row["accuracy_value"] == pytest.approx(first.accuracy.value)
    assert (row["energy_gross_mj"], row["energy_gross_u_mj"], row["energy_scope"]) == (
        energy.gross_mj,
        energy.gross_u_mj,
        energy.scope,
    )
    assert row["energy_gross_mj_ratio"] == pytest.approx(1.0)


def test_another_reference_gives_other_ratios():
    """One latency is five times that of the server and twice that of the other board."""
    runs = (make_reference(), make_run("pi-1"), make_run("pi-2", p50_ms=5.0))
    tables = answers(runs, "compare?format=csv", "compare?reference=pi-2&format=csv")
    ratios = [
        {row["device"]: row["latency_p50_ms_ratio"] for row in rows_of(table)} for table in tables
    ]
    assert (float(ratios[0]["pi-1"]), float(ratios[0]["pi-2"])) == pytest.approx((5.0, 2.5))
    assert float(ratios[1]["pi-1"]) == pytest.approx(2.0)


@pytest.fixture(scope="module")
def sixty_devices():
    """Return two cases each of 60 boards of as many types, and their reference.

    The last boards by name are the fastest and the slowest.
    """
    runs = [make_reference(), make_reference(precision="int8", id="reference-int8")]
    for n in range(60):
        board = make_environment(board=f"board {n:02}")
        p50_ms = {58: 3.0, 59: 99.0}.get(n, 10.0)
        runs += [
            make_run(f"d-{n:02}", environment=board, precision=p, p50_ms=p50_ms, id=f"{n} {p}")
            for p in ("fp32", "int8")
        ]
    return runs


def test_title_front_and_export_are_of_every_case_and_each_is_on_one_page_of_the_table(
    sixty_devices,
):
    """120 cases are on two pages, and CSV and JSON hold each."""
    *pages, table, document = answers(
        sixty_devices,
        "compare?page=1",
        "compare?page=2",
        "compare?page=2&format=csv",
        "compare?page=2&format=json",
    )
    for page in pages:
        assert "<h1>tiny-detector on 60 devices" in page
        front = charts_in(page)[0]
        assert len({row[front["columns"].index("device")] for row in front["rows"]}) == 61
    assert len([row for row in rows_of(table) if row["role"] == "device"]) == 120
    assert (
        len(
            [row for row in json.loads(document)["tables"]["comparison"] if row["role"] == "device"]
        )
        == 120
    )
    rows = [row for page in pages for row in re.findall(r'<tr id="(case-\w+)"', page)]
    assert len(rows) == len(set(rows)) == 122


def test_a_column_in_which_no_row_has_a_value_is_not_shown():
    """An energy that nothing measured and an unreported health are not shown.

    Exports have all columns.
    """
    runs = [make_reference(energy=None), *(make_run(f"pi-{n}", energy=None) for n in range(3))]
    compared, overview, exported = answers(runs, "compare", "", "compare?format=csv")
    headings = [
        re.findall(r"<th [^>]*>([^<]+)</th>", text[text.index("<table") :])
        for text in (compared, overview[overview.index('id="devices"') :])
    ]
    assert [
        heading
        for names in headings
        for heading in names
        if "energy" in heading or "Agent" in heading
    ] == []
    assert "p50 ms" in headings[0]
    assert "p50 ms" in headings[1]
    assert "energy_gross_mj" in exported


def test_equal_boards_are_one_row_and_one_mark():
    """The row has their number, the interval over them and the worst by name.

    Each of them is within, and in the export. There is one legend.
    """
    board = make_environment(board="Raspberry Pi 5")
    runs = [
        make_run(f"pi-{n:02}", environment=board, p50_ms=10 + n / 100, id=f"pi {n}")
        for n in range(24)
    ]
    text, exported = answers(
        [make_reference(environment=make_environment(board="a server")), *runs],
        "compare",
        "compare?format=csv",
    )
    table = text[text.index('id="table"') :]
    (row,) = re.findall(r'<tr id="case-\w+" class="boards".*?</tr>', table)
    assert "24 × Raspberry Pi 5" in row  # noqa: RUF001
    assert "10.1 ± 0.3%" in row
    assert "worst: pi-23" in row
    assert table.count('class="board"') == 24
    assert len(rows_of(exported)) == 25
    chart = charts_in(text)[0]
    (mark,) = (
        mark
        for row in chart["rows"]
        if (mark := dict(zip(chart["columns"], row, strict=True)))["series"] != "reference"
    )
    assert (mark["boards"], mark["cost_low"], mark["cost_high"]) == (
        24,
        pytest.approx(10.09, abs=0.01),
        pytest.approx(10.14, abs=0.01),
    )
    assert text.count("Cost falls to the left") == 1


def test_one_device_in_two_roles_is_drawn_under_two_names():
    """Devices of two fleets with one name are drawn under two names too."""
    both = [
        make_run("here", role=role, id=role, p50_ms=p50_ms)
        for role, p50_ms in (("reference", 10.0), ("device", 11.0))
    ]
    runs = [
        make_reference(),
        *(make_run("pi-1", fleet=fleet, id=fleet) for fleet in ("north", "south")),
    ]
    charts = [charts_in(answers(of, "compare"))[0] for of in (both, runs)]
    assert [
        len({row[chart["columns"].index("series")] for row in chart["rows"]}) for chart in charts
    ] == [2, 3]


def test_devices_that_are_silent_or_throttled_come_first_with_latency_and_energy():
    """They come before the reference and before the healthy ones by name.

    The figures are of the case that most of them ran.
    """
    hot = (record_conditions.Condition(when="during", throttled_now=True),)
    newest_ns = time.time_ns() - DAY_NS
    runs = [
        make_reference(id="reference", started_at_ns=newest_ns),
        *(
            make_run(name, id=name, p50_ms=10.0 + n, started_at_ns=newest_ns)
            for n, name in enumerate(("alpha", "beta"))
        ),
        make_run("hot", id="hot", p50_ms=13.0, started_at_ns=newest_ns, conditions=hot),
        make_run("quiet", id="quiet", p50_ms=14.0, started_at_ns=newest_ns - 20 * DAY_NS),
        make_run("alpha", id="other case", precision="int8", p50_ms=1.0, started_at_ns=newest_ns),
    ]
    csv_text, page = answers(runs, "overview?format=csv", "overview")
    # Nobody knows of the others.
    assert "hot</a>: throttled in 1 of the 1 run that reported it" in page
    rows = rows_of(csv_text)
    assert [row["device"] for row in rows] == ["quiet", "hot", "server-1", "alpha", "beta"]
    assert [row["condition"] for row in rows] == ["silent", "throttled", "", "", ""]
    assert [float(row["latency_p50_ms"]) for row in rows] == [14.0, 13.0, 2.0, 10.0, 11.0]
    assert {float(row["energy_gross_mj"]) for row in rows} == {62.5}


def test_a_comparison_of_power_modes_has_their_marks():
    """Several runs of one case in two modes of a board have a table.

    With one run each nobody can say which is the faster.
    """
    runs = [
        make_run(id=f"run-{mode}", p50_ms=p50_ms, environment=make_environment(power_mode=mode))
        for mode, p50_ms in MODES.items()
    ]
    section = (
        answers((*runs, make_reference()), "compare")
        .partition('id="modes"')[2]
        .partition("</section>")[0]
    )
    cells = re.findall(r'<td class="text"[^>]*>([^<]*)</td>', section)
    assert set(cells[::2]) == set(MODES)
    assert all("fastest" in mark for mark in cells[1::2])


def test_the_level_of_a_board_type_is_that_of_all_its_boards(fleet_page):
    """The table says since when, on how many boards, and counts all their earlier runs."""
    text = text_of(fleet_page, "/compare?board=simulated+Raspberry+Pi+5&precision=int8")
    first, *boards = re.findall(r'class="level">(.*?)</small>', text)
    count, period, earlier = re.fullmatch(
        r"(\d+) of 24 boards since (.*); (\d+) earlier runs left out", first
    ).groups()
    assert int(count) == len(boards) > 1
    days, counts = zip(
        *(
            re.match(r"since (.*?), .*; (\d+) earlier runs? left out$", level).groups()
            for level in boards
        ),
        strict=True,
    )
    assert period == " to ".join(sorted({min(days), max(days)}))
    assert int(earlier) == sum(map(int, counts))


def test_the_health_of_a_device_stands_on_the_overview_and_on_its_page(tmp_path):
    """The overview has the agent in the table and a due remedy among the first things.

    The sensors of the device are on its page.
    """
    ledger = fill(tmp_path / "ledger.sqlite", [make_run(device="pi-1"), make_reference()])
    sensors, now_ns = (Sensor(name="pi5_pmic", id="pi5_pmic"),), time.time_ns()
    health = make_health(device="pi-1", told_ns=now_ns, agent="9.8.7", sensors=sensors)
    report(ledger, PresenceChange("lab", "pi-1", health, now_ns))
    overview, device = answers(ledger, "", "device?device=pi-1")
    (row,) = (
        row
        for row in re.findall(r"<tr.*?</tr>", overview[overview.index('id="devices"') :], re.DOTALL)
        if 'data-device="pi-1"' in row
    )
    assert "9.8.7" in row
    assert "its disk is full" in overview.partition('id="first"')[2].partition("</section>")[0]
    assert "pi5_pmic" in device.partition('id="machine"')[2]
