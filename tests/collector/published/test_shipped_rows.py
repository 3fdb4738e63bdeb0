"""Facts about the published figures that ship."""

from itertools import groupby

import pytest

from edgemeter.collector.published.row import fault, too_few_items
from edgemeter.collector.published.shipped_rows import FOLDER, shipped_rows

# May not ship: CC BY-NC-SA, licences unknown.
OF_USERS_ONLY = ("2409.16808", "rknn-llm", "smolhub")


def test_forty_figures_of_six_sources_ship():
    """Language models and detectors, boards and modules, of vendors, papers, users and second-hand."""
    rows = shipped_rows()
    assert len(rows) >= 40
    assert len({row.source for row in rows}) >= 6
    assert {row.stated_by for row in rows} == {"vendor", "paper", "user", "second-hand"}


def test_each_can_be_a_figure_and_states_its_licence_and_who_states_it():
    """Each with an address of its source that can be looked up, and an id of its own."""
    rows = shipped_rows()
    for row in rows:
        assert fault(row) is None, row
        assert too_few_items(row) is None, row
        assert row.licence, row
        assert row.stated_by, row
        assert row.address.startswith("https://"), row
    assert len({row.id for row in rows}) == len(rows)


def test_no_figure_ships_of_a_source_that_may_not():
    """Of those, users read their own copy."""
    for row in shipped_rows():
        assert not [name for name in OF_USERS_ONLY if name in f"{row.source} {row.address}"], row


def test_each_file_is_headed_by_source_licence_and_what_is_not_stated():
    """One file a source; the header says why it may ship."""
    for path in FOLDER.glob("*.toml"):
        header = path.read_text().partition("[[row]]")[0]
        assert all(line.startswith("## ") and len(line) <= 140 for line in header.splitlines() if line), path.name
        assert "Licence: " in header, path.name
        assert "Not stated" in header or "Not stated there" in header, path.name


def test_both_editions_of_a_page_that_changed_are_rows():
    """One guide's OpenVINO latency on a Raspberry Pi 5 went from 530 to 81 ms."""
    openvino_ms = {row.version: row.value for row in shipped_rows() if row.model == "YOLO11n" and row.runtime == "OpenVINO"}
    assert sorted(openvino_ms.values()) == [81.192, 530.224]


def test_figures_of_one_measurement_are_one_case():
    """Rate, power and energy of each quantisation are held against each other: power / rate is within 7% of the energy stated."""
    rows = sorted((row for row in shipped_rows() if row.source.startswith("llama.cpp")), key=lambda row: repr(row.case))
    cases = [{row.figure: row.value for row in group} for _, group in groupby(rows, key=lambda row: row.case)]
    assert len(cases) == 5
    for case in cases:
        assert case["energy-output-token"] == pytest.approx(case["power"] / case["tokens"], rel=0.07)
