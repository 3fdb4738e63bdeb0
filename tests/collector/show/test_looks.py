import re

from edgemeter.collector.show import series_style
from tests.fixtures.comparison_factory import compare_runs, make_reference, make_run


def test_colour_and_shape_change_together_for_up_to_42_series():
    """No two series look alike, with or without colour for the first six."""
    runs = [make_run(device=f"pi-{index:02}") for index in range(42)]
    found = series_style.assign_styles(compare_runs(*runs, make_reference()).rows)
    every = [found.named(name) for name in found.names]
    assert len({(look.colour, look.shape) for look in every}) == 42
    assert len({look.shape for look in every[:6]}) == 6


def test_series_are_devices_where_there_are_several_and_runtimes_on_one():
    """The colour shows what differs."""
    one = compare_runs(make_run(), make_run(runtime="litert"), make_reference())
    several = compare_runs(make_run(), make_run(device="pi-2"), make_reference())
    assert series_style.assign_styles(one.rows).names == ("litert", "onnx")
    assert series_style.assign_styles(several.rows).names == ("pi-1", "pi-2")


def test_the_reference_is_always_the_star():
    """It is found at once in every chart."""
    comparison = compare_runs(make_run(), make_reference())
    assert series_style.assign_styles(comparison.rows).of(comparison.rows[0]) == series_style.REFERENCE


def test_every_shape_is_a_closed_path_around_its_point():
    """No shape drifts off its value."""
    for shape in [*series_style.SHAPES, "star"]:
        path = series_style.outline(shape, 50.0, 50.0, 5.0)
        assert path.endswith("Z")
        assert "nan" not in path
        if shape != "circle":
            corners = [tuple(map(float, pair.split())) for pair in re.split("[ML]", path[:-1])[1:]]
            assert all(abs(x - 50) <= 9 and abs(y - 50) <= 9 for x, y in corners)
