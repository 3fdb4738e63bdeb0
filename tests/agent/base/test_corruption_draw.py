"""Facts about `edgemeter.agent.base.corruption_draw`."""

from edgemeter.agent.base.corruption_draw import corruption_draw


def test_the_draw_of_an_item_never_changes():
    """Scores of corrupted data from another version or machine are compared with ours: so these numbers are written down."""
    assert corruption_draw("white_noise", 3, 7, "abc").randint(0, 1000, 6).tolist() == [250, 621, 29, 609, 276, 535]


def test_name_severity_seed_and_item_each_change_it():
    """No two corruptions share their noise."""
    draws = [("a", 1, 1, "x"), ("b", 1, 1, "x"), ("a", 2, 1, "x"), ("a", 1, 2, "x"), ("a", 1, 1, "y")]
    assert len({corruption_draw(*draw).randint(2**31) for draw in draws}) == len(draws)
