from edgemeter.collector.published import create
from tests.fixtures.published_pages import facts, page, read_page

NAME = "rknn_zoo.md"


def test_a_column_of_two_chips_is_a_row_for_each():
    """With the precision, the batch of the shape, and one core where the column says so."""
    rows = read_page("rknn_zoo", page(NAME)).rows
    assert [facts(row, "device", "value", "backend") for row in rows if row.model == "finder_n"] == [
        ("RK3566", 31.5, "NPU"), ("RK3568", 31.5, "NPU"), ("RK3588", 70.25, "NPU, one core"), ("RV1126", 20, "NPU"),
    ]  # fmt: skip
    assert facts(rows[0], "figure", "unit", "precision", "batch", "input_size") == ("throughput", "fps", "INT8", 1, "[1, 3, 640, 640]")
    assert facts(rows[0], "version", "power_mode", "stated_by") == ("9.1.0", "maximum NPU frequency", "vendor")
    assert rows[0].conditions == "demo finder, input [1, 3, 640, 640], inference without pre- and post-processing"
    assert "demo finder," in next(row for row in rows if row.model == "finder_s").conditions


def test_a_cell_may_state_a_precision_of_its_own():
    """Of that chip; the others have the row's."""
    precisions = {row.device: row.precision for row in read_page("rknn_zoo", page(NAME)).rows if row.model == "plate_net"}
    assert precisions == {"RK3566": "FP16", "RK3568": "FP16", "RK3588": "FP16", "RV1126": "INT8"}


def test_other_quantities_and_estimates_are_left_out_and_named():
    """A real-time factor, an estimate; how many models a chip does not run is counted."""
    table = read_page("rknn_zoo", page(NAME))
    assert table.left_out == (
        "line 8, finder_s on RK3588: '~35' is not a number",
        "line 10, ear_base on RK3566: 'RTF 0.8' is not a number",
        "line 10, ear_base on RK3568: 'RTF 0.8' is not a number",
        "line 10, ear_base on RK3588: 'RTF 0.1' is not a number",
        "table at line 5: 2 pairs of a model and a chip that does not run it (/)",
    )


def test_a_page_without_notes_leaves_its_conditions_open():
    """Without the notes under the table: no power mode, no release."""
    text = page(NAME)
    (row, *_) = read_page("rknn_zoo", text[: text.index("- This")], version="bad6c73").rows
    assert facts(row, "power_mode", "software", "version") == (None, None, "bad6c73")
    assert row.conditions.endswith("extent not stated")


def test_the_zoo_is_recognised():
    """Other pages are not."""
    reader = create("rknn_zoo")
    assert reader.recognises("README.md", page(NAME))
    assert not any(reader.recognises(name, page(name)) for name in ("rknn_llm.md", "ultralytics.md", "table.md"))
