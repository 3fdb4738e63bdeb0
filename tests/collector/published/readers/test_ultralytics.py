from edgemeter.collector.published import create
from tests.fixtures.published_pages import facts, page, read_page

NAME = "ultralytics.md"


def test_a_format_has_its_latency_and_its_size():
    """The model is the tab's; device, precision and input size are the sentence's above, the release that of the page's head."""
    latency, size = read_page("ultralytics", page(NAME)).rows[:2]
    assert facts(latency, "figure", "value", "unit", "model", "device") == ("latency", 400.5, "ms/im", "YOLO99n", "Some Board")
    assert facts(latency, "runtime", "precision", "input_size") == ("PyTorch", "FP32", "640")
    assert facts(latency, "version", "software") == ("9.3.39", "Ultralytics 9.3.39")
    assert facts(size, "figure", "value", "unit") == ("size", 5.4, "MB")
    assert size.case == latency.case


def test_a_precision_in_the_format_counts():
    """INT8 of TensorRT, although the page says FP32."""
    assert [facts(row, "runtime", "precision") for row in read_page("ultralytics", page(NAME)).rows[2:4]] == [("TensorRT", "INT8")] * 2


def test_the_device_is_the_tabs_or_the_headings():
    """Where a page has several devices."""
    rows = read_page("ultralytics", page(NAME)).rows
    assert facts(rows[4], "model", "device", "value") == ("YOLO99s", "OtherBoard", 88.125)
    assert facts(rows[6], "model", "device", "value", "version") == ("YOLO99n", "Third Board (64GB)", 2.6, "9.3.133")


def test_accuracies_over_four_images_are_left_out():
    """Each table names them once."""
    table = read_page("ultralytics", page(NAME))
    assert {row.figure for row in table.rows} == {"latency", "size"}
    assert [why for why in table.left_out if "mAP" in why] == [
        f"table at line {line}: its mAP is left out: it is over the 4 images of COCO8" for line in (28, 36, 50)
    ]


def test_a_format_that_failed_is_left_out_and_named():
    """Its cells are dashes."""
    left_out = read_page("ultralytics", page(NAME)).left_out
    assert "line 32, YOLO99n CoreML: '-' is not a number" in left_out
    assert "line 32, YOLO99n CoreML, size: '-' is not a number" in left_out


def test_a_sentence_of_several_boards_names_no_device():
    """Nor does a page without a release have an edition: the user gives both, or the rows are left out."""
    text = page(NAME).replace("on a Some Board at", "on both Some Board and Any Board at").replace("benchmark_version: 9.3.39", "")
    for field, user_facts in (("version", {}), ("device", {"version": "78cfa94"})):
        assert f"line 30, YOLO99n PyTorch: Object missing required field `{field}`" in read_page("ultralytics", text, **user_facts).left_out
    (row, *_) = read_page("ultralytics", text, device="Some Board", version="78cfa94").rows
    assert facts(row, "device", "version", "software") == ("Some Board", "78cfa94", None)


def test_guides_are_recognised():
    """Other pages are not."""
    reader = create("ultralytics")
    assert reader.recognises("raspberry-pi.md", page(NAME))
    assert not any(reader.recognises(name, page(name)) for name in ("rknn_llm.md", "rknn_zoo.md", "table.md"))
