"""Facts about the colours and shapes of series."""

from edgemeter.collector.show import series_style
from tests.fixtures.comparison_factory import compare_runs, make_reference, make_run


def test_colour_and_shape_change_together_for_up_to_42_series():
    """No two series look alike, with or without colour for the first six."""
    runs = [make_run(device=f"pi-{index:02}") for index in range(42)]
    styles = series_style.assign_styles(compare_runs(*runs, make_reference()).rows)
    numbered = [series_style.numbered_style(index) for index in range(len(styles.names))]
    assert len({(look.colour, look.shape) for look in numbered}) == 42
    assert len({look.shape for look in numbered[:6]}) == 6


def test_series_are_devices_where_there_are_several_and_runtimes_on_one():
    """The colour shows what differs; the reference is always the star, and every shape has a sign."""
    comparison = compare_runs(make_run(), make_run(runtime="litert"), make_reference())
    several = compare_runs(make_run(), make_run(device="pi-2"), make_reference())
    assert series_style.assign_styles(comparison.rows).names == ("litert", "onnx")
    assert series_style.assign_styles(several.rows).names == ("pi-1", "pi-2")
    assert series_style.assign_styles(comparison.rows).of(comparison.rows[0]) == series_style.REFERENCE
    assert {*series_style.SHAPES, series_style.REFERENCE.shape} == set(series_style.GLYPHS)
