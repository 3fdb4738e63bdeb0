from edgemeter.collector.published import create
from tests.fixtures.published_pages import facts, page, read_page

NAME = "hailo_zoo.rst"
LOSSES = (("38.25", "1.4"), ("51.5", "0.6"))


def read(text, **user_facts):
    """Return what is read of a page of a chip."""
    return read_page("hailo_zoo", text, **{"device": "Hailo-8L"} | user_facts)


def without_drones(text):
    """Return the page up to its second table."""
    return text[: text.index("VisDrone")]


def test_a_model_has_a_row_for_each_batch_and_one_for_its_accuracy():
    """With its size, its work and the edition of the compiler."""
    table = read(page(NAME))
    first, eight, accuracy = table.rows[:3]
    assert facts(first, "figure", "value", "unit", "batch", "model", "device") == (
        "throughput",
        101,
        "fps",
        1,
        "small_detector",
        "Hailo-8L",
    )
    assert facts(first, "gop", "parameters", "input_size") == (6.55, 2.6e6, "640x640x3")
    assert facts(first, "version", "software") == ("Dataflow Compiler 3.28.0", "Hailo Dataflow Compiler 3.28.0")
    assert facts(eight, "value", "batch") == (202.5, 8)
    assert "performance mode" in eight.conditions
    assert facts(accuracy, "figure", "value", "unit", "images", "dataset") == ("accuracy", 38.25, "%", 5000, "COCO val2017")
    assert facts(accuracy, "accuracy_metric", "batch") == ("mAP", None)


def test_cells_that_are_no_numbers_are_left_out_and_named():
    """A throughput of None, one that may be a decimal, a row that is cut off; an absent number of parameters is not stated."""
    table = read(page(NAME))
    assert [facts(row, "figure", "value", "parameters") for row in table.rows if row.model == "large_detector"] == [
        ("accuracy", 51.5, None)
    ]
    assert "line 43, large_detector batch 1: 'None' is not a number" in table.left_out
    assert "line 43, large_detector batch 8: '1,600' may be a thousand or a decimal" in table.left_out
    assert "line 52: 2 cells under 9 column names" in table.left_out


def test_an_accuracy_over_an_unknown_number_of_images_is_left_out():
    """The throughput of the table is read."""
    table = read(page(NAME))
    assert [row.value for row in table.rows if row.model == "drone_detector"] == [300, 301]
    assert (
        "table at line 61: its accuracies are left out: the number of images behind 'Quantized' of 'VisDrone' is not known"
        in table.left_out
    )


def test_a_column_of_losses_is_no_accuracy():
    """`Quantized` held losses in the releases of Dataflow Compiler 3.29."""
    text = without_drones(page(NAME))
    for accuracy, loss in LOSSES:
        text = text.replace(accuracy, loss)
    table = read(text)
    assert {row.figure for row in table.rows} == {"throughput"}
    assert "table at line 24: its accuracies are left out: 'Quantized' holds losses" in table.left_out


def test_a_table_of_both_is_not_clear():
    """One row with a loss makes all of them doubtful."""
    table = read(without_drones(page(NAME)).replace("38.25", "1.4"))
    assert {row.figure for row in table.rows} == {"throughput"}
    assert any("whether 'Quantized' holds accuracies or losses is not clear" in why for why in table.left_out)


def test_a_table_whose_columns_are_displaced_is_left_out():
    """Pages of Dataflow Compiler 3.33 have the loss without its decimals where the throughput belongs."""
    text = without_drones(page(NAME)).replace("     - 101\n", "     - 1\n").replace("     - None\n", "     - 0\n")
    for accuracy, loss in LOSSES:
        text = text.replace(accuracy, loss)
    table = read(text)
    assert table.rows == ()
    assert "table at line 24: its throughput repeats 'Quantized': the columns are displaced" in table.left_out


def test_a_page_does_not_name_its_chip():
    """No row is taken until the user does, and the first line tells how."""
    table = read_page("hailo_zoo", page(NAME))
    assert table.rows == ()
    assert "give --device" in table.left_out[0]


def test_the_users_edition_counts():
    """A commit says more than the compiler's release, `not stated` says less."""
    assert {row.version for row in read(page(NAME), version="not stated").rows} == {"Dataflow Compiler 3.28.0"}
    assert {row.version for row in read(page(NAME), version="c83fc03").rows} == {"c83fc03"}


def test_pages_of_the_zoo_are_recognised():
    """Others are not."""
    reader = create("hailo_zoo")
    assert reader.recognises("HAILO8L_object_detection.rst", page(NAME))
    assert not any(reader.recognises(name, page(name)) for name in ("rknn_zoo.md", "ultralytics.md", "table.md"))
