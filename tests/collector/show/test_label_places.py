from itertools import combinations

from edgemeter.collector.show.drawing import ChartFrame
from edgemeter.collector.show.scatter import CHARACTER_WIDTH, HEIGHT, label_places

FRAME = ChartFrame(0, 0, 400, 300)


def box(place, text):
    """Return left, top, right and bottom of a label."""
    width = len(text) * CHARACTER_WIDTH
    left = {"start": place.x, "end": place.x - width, "middle": place.x - width / 2}[place.anchor]
    return left, place.y - 4 - HEIGHT / 2, left + width, place.y - 4 + HEIGHT / 2


def test_labels_do_not_cover_each_other_nor_leave_the_frame():
    """In a crowd some are left away, none is illegible."""
    points = [(200 + 7 * (index % 6), 150 + 9 * (index // 6)) for index in range(36)]
    texts = [f"case {index}" for index in range(36)]
    boxes = [box(place, text) for place, text in zip(label_places(points, texts, FRAME), texts, strict=True) if place]
    assert 4 <= len(boxes) < 36
    assert all(left >= 0 and right <= 400 and bottom <= 300 for left, _, right, bottom in boxes)
    for one, other in combinations(boxes, 2):
        assert one[0] >= other[2] or other[0] >= one[2] or one[1] >= other[3] or other[1] >= one[3]


def test_a_lonely_label_stands_at_the_right_of_its_point():
    """And at the left where the frame ends."""
    alone, at_the_edge = label_places([(100, 100), (390, 200)], ["fp32", "fp32"], FRAME)
    assert (alone.anchor, at_the_edge.anchor) == ("start", "end")
    assert alone.x > 100
    assert at_the_edge.x < 390


def test_a_point_without_text_has_no_place():
    """It still keeps its own room."""
    assert label_places([(100, 100)], [None], FRAME) == [None]
