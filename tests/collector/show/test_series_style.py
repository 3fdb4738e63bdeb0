from edgemeter.collector.show import series_style
from tests.fixtures.comparison_factory import compare_runs, make_reference, make_run


def test_series_are_devices_where_there_are_several_and_runtimes_on_one():
    """The colour shows the difference between series.

    The reference is always the star, and every shape has a sign.
    """
    comparison = compare_runs(make_run(), make_run(runtime="litert"), make_reference())
    several = compare_runs(make_run(), make_run(device="pi-2"), make_reference())
    assert series_style.assign_styles(comparison.rows).names == ("litert", "onnx")
    assert series_style.assign_styles(several.rows).names == ("pi-1", "pi-2")
    assert (
        series_style.assign_styles(comparison.rows).of(comparison.rows[0]) == series_style.REFERENCE
    )
    assert {*series_style.SHAPES, series_style.REFERENCE.shape} == set(series_style.GLYPHS)


def test_the_cases_of_one_device_alone_are_series():
    """Nothing is compared with them, so they are no star, but each has a colour."""
    alone = compare_runs(make_run(), make_run(runtime="litert"), reference="pi-1")
    styles = series_style.assign_styles(alone.rows)
    assert styles.names == ("litert", "onnx")
    assert [styles.of(row) for row in alone.rows] == [
        series_style.numbered_style(index) for index in (1, 0)
    ]
