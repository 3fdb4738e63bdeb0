import csv
import io

from edgemeter.agent.base.documents import csv_document
from edgemeter.collector.runs.run_table import chosen_columns, write_csv
from tests.fixtures.comparison_factory import make_run

FORMULAS = ("=1+1", "@SUM(A1)", "+cmd|' /C calc'!A0", "-2+3", "\t=1", "\r=1")


def test_a_text_that_a_spreadsheet_would_run_is_a_text():
    """Such a text gets a leading apostrophe, and is otherwise unchanged.

    This holds for the document of every command and for the export of runs.
    """
    for text in FORMULAS:
        (row,) = list(csv.reader(io.StringIO(csv_document(("name",), [(text,)]), newline="")))[1:]
        assert row == [f"'{text}"]
        exported = io.StringIO(newline="")
        write_csv([make_run(device=text)], chosen_columns(["device"]), exported)
        assert list(csv.reader(io.StringIO(exported.getvalue(), newline="")))[1] == [f"'{text}"]


def test_a_nul_is_a_replacement_character():
    """RFC 4180 allows no NUL, and with Python 3.10 a single one ended the CSV of all runs."""
    assert csv_document(("name", "rest"), [("a\0b", "c"), (["d\0", "e"], 1)]).splitlines()[1:] == [
        "a\ufffdb,c",
        "d\ufffd | e,1",
    ]
    exported = io.StringIO(newline="")
    write_csv(
        [make_run(device="pi\0"), make_run(device="pi")], chosen_columns(["device"]), exported
    )
    assert exported.getvalue().split() == ["device", "pi\ufffd", "pi"]


def test_a_number_and_a_plain_text_stay_as_they_are():
    """A negative difference is not a formula, even where it was written as text."""
    for value in (-1.5, -3, "-1.5", "+2", "-1e-05", "pi-1", "a=b", "", None):
        assert (
            csv_document(("value", "n"), [(value, 1)]).splitlines()[1]
            == f"{'' if value is None else value},1"
        )
