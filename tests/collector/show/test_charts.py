import re

from edgemeter.collector.show.lanes import BarPart, Lane, LatencyDistribution, bar_lanes, distribution_lanes
from edgemeter.collector.show.scatter import ScatterPoint, scatter
from edgemeter.collector.show.series_style import REFERENCE, SeriesStyle


def point(cost, accuracy, name, series="pi-1", *, is_reference=False, is_suspect=False):
    """Return a point of the scatter chart."""
    return ScatterPoint(
        cost=cost,
        accuracy=accuracy,
        series=series,
        style=REFERENCE if is_reference else SeriesStyle("s0", "circle"),
        name=name,
        explanation=f"about {name}",
        link=f"#{name}",
        is_reference=is_reference,
        is_hollow=name == "int8",
        is_suspect=is_suspect,
    )


def found(*values):
    """Return a distribution of these latencies."""
    return LatencyDistribution(len(values), (values[0], values[0], values[len(values) // 2], values[-1], values[-1]), (values[0],), values)


LANE = Lane("fp32", "10.0 ms", SeriesStyle("s0", "circle"), "#case-1")


def test_a_point_stands_to_the_right_when_it_costs_more_and_higher_when_it_is_more_accurate():
    """Up and left is better, as the page says."""
    svg = scatter([point(1.0, 0.3, "int8"), point(8.0, 0.6, "fp32")], "title", "ms", "AP")
    cheap, dear = (
        tuple(map(float, re.search(r'd="M([\d.]+) ([\d.]+)a', mark).groups()))
        for mark in re.findall(r'<path d="M[^>]*class="mark[^>]*>', svg)
    )
    assert cheap[0] < dear[0]
    assert cheap[1] > dear[1]


def test_the_front_steps_over_what_nothing_beats_and_leaves_the_reference_out():
    """One line per series, through two of its three points."""
    points = [point(1.0, 0.3, "int8"), point(8.0, 0.6, "fp32"), point(9.0, 0.5, "slow"), point(0.5, 0.7, "server", is_reference=True)]
    svg = scatter(points, "title", "ms", "AP")
    (front,) = re.findall(r'<path d="([^"]*)" class="front', svg)
    assert (front.count("H"), front.count("V")) == (1, 1)
    assert svg.count('class="guide"') == 2


def test_a_suspect_point_carries_a_question_mark_and_an_integer_precision_is_hollow():
    """Doubt and precision show without colour."""
    svg = scatter([point(1.0, 0.3, "int8", is_suspect=True)], "title", "ms", "AP")
    assert ">int8 ?</text>" in svg
    assert 'class="mark s0 hollow suspect"' in svg


def test_in_a_crowd_only_front_and_reference_are_named():
    """The others tell on touch."""
    crowd = [point(10.0 + index, 0.3, f"case-{index}") for index in range(12)]
    svg = scatter([*crowd, point(1.0, 0.9, "server", series="server", is_reference=True)], "title", "ms", "AP")
    assert ">case-0</text>" in svg
    assert ">server</text>" in svg
    assert ">case-7</text>" not in svg
    assert "<title>about case-7</title>" in svg


def test_a_lane_draws_every_dot_its_box_and_the_median_of_each_run():
    """Three queries, three dots."""
    svg = distribution_lanes([LANE], [found(1.0, 2.0, 9.0)], "title", "ms")
    (dots,) = re.findall(r'<path d="([^"]*)" class="dots', svg)
    assert dots.count("M") == 3
    assert svg.count('class="box') == svg.count('class="median') == svg.count('class="run"') == 1


def test_all_lanes_share_one_axis():
    """The same latency stands at the same place in both."""
    svg = distribution_lanes([LANE, LANE], [found(1.0, 2.0, 9.0), found(2.0, 4.0, 5.0)], "title", "ms")
    first, second = (re.findall(r"M([\d.]+) ", dots) for dots in re.findall(r'<path d="([^"]*)" class="dots', svg))
    assert first[1] == second[0]


def test_the_parts_of_a_bar_follow_each_other_and_are_as_long_as_their_amounts():
    """Import 30, load 10: three times as long, and no gap."""
    svg = bar_lanes([LANE], [[BarPart("import", 30.0, 1), BarPart("load", 10.0, 2)]], "title", "ms")
    (one, other) = (tuple(map(float, pair)) for pair in re.findall(r'<rect x="([\d.]+)" y="[\d.]+" width="([\d.]+)"', svg))
    assert other[0] == sum(one)
    assert abs(one[1] / other[1] - 3) < 0.01


def test_bars_of_nothing_are_drawn_without_length():
    """Zero is no division by zero."""
    assert 'width="0.6"' in bar_lanes([LANE], [[BarPart("load", 0.0, 2)]], "title", "ms")
