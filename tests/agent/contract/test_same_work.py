"""Facts about which whole queries of language models are the same work."""

from edgemeter.agent.contract.same_work import why_other_answers
from tests.fixtures.record_factory import make_generation, make_record


def test_whole_queries_at_other_depths_are_other_work():
    """Each token reads what is in the cache; with prompts of their own queries are at no depth."""
    runs = {depth: make_record(generation=make_generation(depth_tokens=depth)) for depth in (None, 0, 4096)}
    assert why_other_answers(runs[0], runs[4096]) == "depths of 4096 against 0 tokens are other work"
    assert why_other_answers(runs[None], runs[4096]) == "depths of 4096 against no tokens are other work"
    assert why_other_answers(runs[4096], runs[4096]) == ""
    assert why_other_answers(make_record(), runs[4096]) == ""
