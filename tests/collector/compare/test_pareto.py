from edgemeter.collector.compare.trade_off import pareto_front


def test_the_front_holds_what_nothing_beats_cheapest_first():
    """(4, 0.5) is beaten by (2, 0.6); (1, 0.3) is the cheapest."""
    points = [(4.0, 0.5), (2.0, 0.6), (8.0, 0.7), (1.0, 0.3), (9.0, 0.7)]
    assert [points[index] for index in pareto_front(points)] == [(1.0, 0.3), (2.0, 0.6), (8.0, 0.7)]


def test_of_equal_cost_the_more_accurate_stays():
    """And of equal accuracy the cheaper."""
    assert pareto_front([(1.0, 0.5), (1.0, 0.6), (2.0, 0.6)]) == [1]


def test_equal_points_all_stay():
    """Of two equal points neither beats the other."""
    assert pareto_front([(1.0, 0.5), (1.0, 0.5)]) == [0, 1]


def test_of_nothing_there_is_no_front():
    """An empty chart is no error."""
    assert pareto_front([]) == []
