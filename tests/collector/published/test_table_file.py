import random

import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.collector.published import table_file
from edgemeter.collector.published.row import KINDS, PublishedRow, fault
from edgemeter.collector.published.shipped_rows import shipped_rows
from edgemeter.collector.reference.imported import ReferenceStore
from tests.fixtures.rows import table_row


def make_row(**changes):
    """Return a published row; `changes` are its fields."""
    fields = {
        "source": "A guide",
        "version": "8.3.39",
        "date": "2026-11-02",
        "address": "https://example.org/guide",
        "model": "YOLO11n",
        "device": "Raspberry Pi 5",
        "figure": "latency",
        "value": 88.026,
        "unit": "ms",
        "conditions": "640 x 640, batch 1",
        "runtime": "NCNN",
    }
    return PublishedRow(**(fields | changes))


def test_what_is_written_is_read_again(tmp_path):
    """Quotes, backslashes and other alphabets included."""
    rows = [make_row(conditions='"quoted" \\ und Übliches'), make_row(figure="accuracy", value=39.5, unit="%", images=5000)]
    path = tmp_path / "own.toml"
    path.write_text("\n".join(map(table_file.to_toml, rows)))
    assert table_file.read(path) == rows


def test_a_csv_file_holds_the_same_rows(tmp_path):
    """An empty cell is an absent field; numbers are numbers."""
    path = tmp_path / "own.csv"
    header = "source,version,date,address,model,device,metric,value,unit,conditions,runtime,images"
    figure = "https://example.org/guide,YOLO11n,Raspberry Pi 5,latency,88.026,ms"
    path.write_text(f'{header}\nA guide,8.3.39,2026-11-02,{figure},"640 x 640, batch 1",NCNN,\n')
    assert table_file.read(path) == [make_row()]


def test_published_units_become_ours():
    """Times become milliseconds, energies millijoules, percentages ratios."""
    for metric, value, unit, canonical in (
        ("latency", 3.0, "s", (3000.0, "ms")),
        ("latency", 250.0, "us", (0.25, "ms")),
        ("throughput", 310.0, "FPS", (310.0, "per s")),
        ("energy", 0.5, "J", (500.0, "mJ")),
        ("accuracy", 39.5, "%", (0.395, "")),
    ):
        with table_row(metric, unit):
            converted = make_row(figure=metric, value=value, unit=unit, images=5000).canonical
            assert converted == (pytest.approx(canonical[0]), canonical[1])


def test_every_figure_may_be_published_in_its_unit():
    """And in no unknown one, with those that there are."""
    for name, kind in KINDS.items():
        with table_row(name):
            assert kind.factor(kind.unit or "ratio") == 1.0
            assert kind.factor("parsec") is None


def test_an_impossible_figure_is_refused(tmp_path):
    """When it is added, with the reason."""
    for changes, message in (
        ({"unit": "parsec"}, "unit 'parsec' is not one of latency: ms, s, us"),
        ({"value": float("nan")}, "is not a number above 0"),
        ({"value": -3.0}, "is not a number above 0"),
        ({"address": "somewhere"}, r"is not an http\(s\):// address"),
        ({"figure": "accuracy", "value": 0.61, "unit": "ratio", "images": 4}, "at least 100: this has 4"),
        ({"figure": "accuracy", "value": 0.61, "unit": "ratio"}, "at least 100: this has None"),
        ({"figure": "accuracy", "value": 61.0, "unit": "ratio", "images": 5000}, "is above 1"),
        ({"date": "2026-13-40"}, "date '2026-13-40' is not a calendar date"),
        ({"conditions": "bell \a"}, "control character"),
    ):
        with table_row(changes), pytest.raises(ConfigError, match=message):
            ReferenceStore(tmp_path).add([make_row(**changes)])


def test_a_wrong_file_is_refused_and_named(tmp_path):
    """A TOML or CSV file with other keys, no rows or no text: the error says which file or line."""
    for name, content, message in (
        ("own.toml", b"[[row]]\nsource = 'x'\n", "missing required field"),
        ("own.toml", b"[[row", r"own\.toml'"),
        ("own.toml", b"\xff", r"own\.toml'"),
        ("own.toml", b"[[line]]\n", "unknown field|missing"),
        ("own.csv", b"source,version\na,b\n", "line 2: "),
        ("own.csv", b"source,version\na,b,c\n", "line 2: more cells than the header"),
        ("own.csv", b"", "holds no figure"),
        ("own.csv", b"source,version\n", "holds no figure"),
        ("own.csv", b"\xff\xfe", "is not UTF-8 text"),
    ):
        with table_row(name, content):
            path = tmp_path / name
            path.write_bytes(content)
            with pytest.raises(ConfigError, match=message):
                table_file.read(path)


def test_a_page_that_changed_is_another_version(tmp_path):
    """The same edition cannot have two figures; another edition stands beside it."""
    shelf = ReferenceStore(tmp_path)
    assert len(shelf.add([make_row()])) == 1
    assert shelf.add([make_row()]) == []
    with pytest.raises(ConfigError, match=r"already has 88\.026 ms .* a changed page is another version or date"):
        shelf.add([make_row(value=530.224)])
    shelf.add([make_row(value=530.224, version="8.2.0")])
    assert [row.value for row in shelf.published() if row not in shipped_rows()] == [88.026, 530.224]


def test_a_wrong_figure_in_a_csv_file_is_named_by_its_line(tmp_path):
    """The header is line 1, as an editor counts."""
    row = make_row(unit="fps")
    names = [name for name in row.__struct_fields__ if getattr(row, name) is not None]
    path = tmp_path / "own.csv"
    path.write_text(",".join(names) + "\n" + ",".join(f'"{getattr(row, name)}"' for name in names) + "\n")
    with pytest.raises(ConfigError, match="line 2: unit 'fps' is not one of latency"):
        table_file.read(path)


@pytest.mark.parametrize(
    "changes",
    [
        {"low": float("nan"), "high": float("inf")},
        {"standard_deviation": float("nan")},
        {"standard_deviation": -3.0},
        {"gop": float("inf")},
        {"weights_mb": float("inf")},
        {"weights_mb": 5e-324},
        {"value": 5e-324},
        {"value": 5e-324, "unit": "us"},
        {"value": 1e308, "unit": "s"},
        {"value": float("inf")},
        {"batch": 10**26},
        {"count": 9 * 10**18},
        {"low": 9.0, "high": 1.0, "value": 5.0},
        {"low": 9.0, "high": 19.0, "value": 5.0},
        {"low": -5.0, "high": 6.0, "value": 5.0},
        {"high": 4.0, "value": 5.0},
    ],
    ids=repr,
)
def test_a_number_that_no_device_has_is_refused_and_spoils_no_file(tmp_path, changes):
    """Whichever field it is in; a range holds its value."""
    shelf = ReferenceStore(tmp_path)
    shelf.add([make_row()])
    with pytest.raises(ConfigError, match=r"not a number|not within its range"):
        shelf.add([make_row(**{"model": "another"} | changes)])
    assert make_row() in shelf.published()


def test_a_range_with_fewer_digits_holds_its_value():
    """llama-bench prints the mean with nine digits and its samples with six."""
    assert fault(make_row(value=123.456789, low=123.457, high=123.457)) is None


def test_rows_at_the_bounds_are_written_and_read_again(tmp_path):
    """The largest and smallest numbers, and every letter that is allowed."""
    generator = random.Random(3)  # noqa: S311 - makes rows
    letters = [chr(code) for code in range(0x20, 0x3000) if chr(code).isprintable()]
    rows = [
        make_row(
            version=str(index),
            model="x" + "".join(generator.choices(letters, k=40)),
            value=10 ** generator.uniform(-12, 17),
            gop=10 ** generator.uniform(-12, 18),
            count=generator.randrange(2**53),
            standard_deviation=generator.choice((0.0, 1e-12, 1e16, 1e18)),
        )
        for index in range(200)
    ]
    assert [fault(row) for row in rows] == [None] * 200
    path = tmp_path / "own.toml"
    path.write_text("\n".join(map(table_file.to_toml, rows)), encoding="utf-8")
    assert table_file.read(path) == rows


def test_the_case_of_a_unit_counts_where_it_decides():
    """MJ is no mJ and MW no mW; FPS, MS and Mb say the same in any case."""
    for figure, unit, is_known in (
        ("energy", "mJ", True),
        ("energy", "MJ", False),
        ("energy", "Mwh", False),
        ("energy", "J", True),
        ("power", "mW", True),
        ("power", "MW", False),
        ("latency", "MS", True),
        ("memory", "mb", True),
        ("memory", "MB", True),
        ("throughput", "FPS", True),
    ):
        with table_row(figure, unit):
            assert (fault(make_row(figure=figure, unit=unit)) is None) is is_known


def test_blanks_and_byte_order_marks_of_a_page_are_no_part_of_a_figure(tmp_path):
    """In our own TOML and CSV."""
    header = "source,version,date,address,model,device,figure,value,unit"
    figure = "s,v,2026-01-01,https://example.org,YOLO\u00a0v8n,Raspberry Pi\u202f5,latency,5,ms"
    (tmp_path / "own.csv").write_text(f"{header}\n{figure}\n", encoding="utf-8-sig")
    (tmp_path / "own.toml").write_text(table_file.to_toml(make_row(model="YOLO v8n")).replace("O v", "O\u00a0v"), encoding="utf-8-sig")
    for name in ("own.csv", "own.toml"):
        with table_row(name):
            (row,) = table_file.read(tmp_path / name)
            assert (row.model, row.device) == ("YOLO v8n", "Raspberry Pi 5")


def test_a_file_that_is_not_as_we_write_it_is_refused_with_the_reason(tmp_path):
    """Semicolons, a column that comes twice, lists within lists, numbers that no machine has."""
    for name, content, message in (
        ("own.csv", "source;version\na;b\n", "separated by ';': separate its columns by commas"),
        ("own.csv", "source,value,value\na,5,9\n", "two columns 'value'"),
        ("own.toml", "row = " + "[" * 100_000, "each figure is a table"),
        ("own.toml", f"[[row]]\nvalue = {'9' * 5000}\n", "each figure is a table"),
    ):
        with table_row(name, content[:40]):
            path = tmp_path / name
            path.write_text(content)
            with pytest.raises(ConfigError, match=message):
                table_file.read(path)
