import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.collector.published.laws import judge
from edgemeter.collector.published.readers import (
    EXAMPLE,
    SHIPPED,
    PublishedFolder,
    parse_claim,
    quantity,
    read,
    shipped_rows,
)
from edgemeter.collector.published.row import row_of
from tests.fixtures.published_rows import folder_of, published_row
from tests.fixtures.rows import table_row


def test_83_figures_ship_each_with_an_address_and_its_licence():
    """Every file states its licence at the top, and which facts its source leaves open."""
    rows = shipped_rows()
    assert len({row.key for row in rows}) == len(rows) == 83
    assert all(row.address.startswith("https://") and row.licence and row.stated_by for row in rows)
    for path in SHIPPED.glob("*.toml"):
        assert "Licence" in path.read_text(), path.name
        assert "Not stated" in path.read_text(), path.name


def test_a_users_figures_stand_beside_those_that_ship(tmp_path):
    """The version of a folder changes with its files."""
    version = PublishedFolder(tmp_path / "references").version()
    row = published_row("latency_p50_ms", 10.0)
    folder = folder_of(tmp_path / "references", row)
    assert folder.rows() == [*shipped_rows(), row]
    assert folder.version() != version


def test_a_damaged_file_and_a_wrong_figure_are_named(tmp_path):
    """The error names the file, and the case in it."""
    for text, words in (
        ("[{", "cannot read"),
        ('[[case]]\nfigures = [{ figure = "colour" }]', "case 1: no published figure"),
    ):
        (tmp_path / "own.toml").write_text(text)
        with (
            table_row(text),
            pytest.raises(ConfigError, match=rf"own\.toml.*{words}|{words}.*own\.toml"),
        ):
            PublishedFolder(tmp_path).rows()


def test_what_cannot_be_a_figure_is_refused():
    """Whether to believe a figure is another question."""
    fields = {
        "source": "A page", "version": "1", "date": "2026-11-20", "address": "https://example.org",
        "model": "m", "device": "d", "figure": "latency_p50_ms", "value": "10", "unit": "ms",
    }  # fmt: skip
    assert row_of(fields).canonical == 10.0
    for changes, message in (
        ({"figure": "colour"}, "'colour' is not a figure"),
        ({"unit": "apples"}, "unit 'apples'"),
        ({"value": -1}, "value"),
        ({"value": float("inf")}, "out of range"),
        ({"date": "2026-13-01"}, "no published figure"),
        ({"low": 20.0}, "not within its range"),
        ({"figure": "power", "unit": "MW"}, "unit 'MW'"),
        ({"source": None}, "source"),
        ({"scope": "moon"}, "scope"),
    ):
        with table_row(changes), pytest.raises(ConfigError, match=message):
            row_of(fields | changes)


FACTS = {
    "source": "A page",
    "version": "1",
    "date": "2026-11-20",
    "address": "https://example.org/page",
}


def read_text(tmp_path, name, text, **facts):
    path = tmp_path / name
    path.write_text(text)
    return read(path, FACTS | facts)


def figures_of(result):
    return [(row.model, row.figure, row.canonical) for row in result.rows]


def test_a_csv_table_has_a_figure_a_line(tmp_path):
    """The headings of the table are fields.

    A line that is not understood, or occurs twice, is left out and named.
    """
    lines = (
        "model,figure,value,unit,batch", "yolo11n,p50,81.2,ms,", "yolo11s,throughput,120,fps,8",
        "yolo11n,p50,x,ms,", "yolo11n,p50,1,ms,", "yolo11m,p50,3,ms,1,more", "yolo11l,p50",
    )  # fmt: skip
    result = read_text(tmp_path, "rows.csv", "\n".join(lines), device="Raspberry Pi 5")
    assert figures_of(result) == [
        ("yolo11n", "latency_p50_ms", 81.2),
        ("yolo11s", "throughput_per_s", 120.0),
    ]
    assert [(row.device, row.batch) for row in result.rows] == [
        ("Raspberry Pi 5", None),
        ("Raspberry Pi 5", 8),
    ]
    assert [words.partition(":")[0] for words in result.left_out] == [
        "line 4",
        "line 5",
        "line 6",
        "line 7",
    ]


OTHER_FIELDS = r"is not a field: source, version, .*CSV with the fields"


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("page.md", b"Model,Latency (ms)\nyolo11n,81.2\n", OTHER_FIELDS),
        ("page.md", b"| model | value |\n|---|---|\n", OTHER_FIELDS),
        ("page.md", b"", OTHER_FIELDS),
        *((name, b'[{"ID": \xff', name) for name in ("a.toml", "a.json", "a.csv")),
    ],
)
def test_a_table_of_something_else_and_a_damaged_file_are_refused(tmp_path, name, content, reason):
    """The error lists the existing fields, or names the damaged file, of which nothing is taken."""
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=reason):
        read(path, FACTS)


def test_our_own_file_has_editions_cases_and_figures(tmp_path):
    """Values at the top hold below, and a repeated figure is left out."""
    text = """
runtime = "onnx"
[[case]]
model = "m"
device = "Raspberry Pi 5"
figures = [
  { figure = "energy_gross_mj", value = 0.5, unit = "J" },
  { figure = "throughput_per_s", value = 10, unit = "fps" },
]
[[case]]
model = "m"
device = "Raspberry Pi 5"
figures = [
  { figure = "energy_gross_mj", value = 0.6, unit = "J" },
  { figure = "colour", value = 1, unit = "J" },
]
"""
    result = read_text(tmp_path, "own.toml", text)
    assert figures_of(result) == [("m", "energy_gross_mj", 500.0), ("m", "throughput_per_s", 10.0)]
    assert [row.runtime for row in result.rows] == ["onnx", "onnx"]
    assert len(result.left_out) == 2
    assert judge(result.rows)[0].deciding.value == pytest.approx(5.0)


DATE = {"date": "2026-11-20"}


def test_a_claim_is_a_model_a_device_and_a_figure():
    """The end of a range that is easier to reach counts.

    The unit says which figure it is, unless options name another figure of it.
    """
    for text, *fields in (
        (
            EXAMPLE,
            "Llama 3.2 3B Q4",
            "Raspberry Pi AI HAT+ 2",
            "generation_decode_tokens_per_s",
            18.0,
        ),
        (
            "YOLOv8n INT8 on Jetson Orin Nano (25W): 3-4 ms",
            "YOLOv8n INT8",
            "Jetson Orin Nano (25W)",
            "latency_p50_ms",
            4.0,
        ),
        (
            "m on RK3588: 0.25 J/token",
            "m",
            "RK3588",
            "generation_energy_output_token_gross_mj",
            250.0,
        ),
        ("m on RK3588: 286 FPS", "m", "RK3588", "throughput_per_s", 286.0),
        ("m on RK3588: 12 W", "m", "RK3588", "energy_mean_power_w", 12.0),
    ):
        with table_row(text):
            row = parse_claim(text, DATE)
            assert [row.model, row.device, row.figure, row.canonical] == fields
    row = parse_claim(
        "m on RK3588: 378 ms", {**DATE, "figure": "generation_ttft_p50_ms", "prompt_tokens": "128"}
    )
    assert (row.figure, row.prompt_tokens) == ("generation_ttft_p50_ms", 128)


def test_what_is_not_understood_refuses_a_claim():
    """The error has an example."""
    for text in (
        "m: 20 tokens/s",
        "m on RK3588: 20",
        "m on RK3588: 20 apples",
        "m on RK3588: 1,234 ms",
        "m on RK3588: fast",
    ):
        with table_row(text), pytest.raises(ConfigError, match=r"such as 'Llama|Write for example"):
            parse_claim(text, DATE)


def test_a_number_is_read_with_its_unit():
    """A comma separates thousands only where nothing else can be meant.

    An ambiguous text is no number.
    """
    cells = {
        "1,234.5": (1234.5, ""),
        "12,345,678": (12345678.0, ""),
        "3.3 ms": (3.3, "ms"),
        "1e3W": (1e3, "W"),
    }
    assert {cell: quantity(cell) for cell in cells} == cells
    for cell in ("1,234", "fast", "", "3.2.1"):
        with table_row(cell), pytest.raises(ValueError, match=r"not a number|decimal"):
            quantity(cell)
