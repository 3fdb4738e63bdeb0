"""The ways from what a file is to what it can become, and words for what of it is float."""

from edgemeter.models.convert import formats
from edgemeter.models.convert.float_nodes import CountedNode, float_facts, float_words


def test_the_way_leads_over_the_forms_between():
    """Each form is made from the one before it; no way leads back or across, and no two formats write one file."""
    for start, goal in (("onnx-fp32", "litert-int8"), ("litert-int8", "litert-fp16"), ("onnx-int8", "tensorrt-int8")):
        assert formats.steps_to(start, goal) is None, f"{start!r}, {goal!r}"
    endings = [entry.ending for entry in formats.FORMATS.values()]
    assert len(set(endings)) == len(endings)
    for start, goal, steps in (
        ("torch", "onnx-int8", ["onnx-fp32", "onnx-int8"]),
        ("torch", "edgetpu", ["litert-fp32", "litert-int8", "edgetpu"]),
        ("onnx-fp32", "tensorrt-int8", ["onnx-int8-symmetric", "tensorrt-int8"]),
        ("litert-int8", "edgetpu", ["edgetpu"]),
    ):
        assert [step.name for step in formats.steps_to(start, goal)] == steps, f"{start!r}, {goal!r}"


def test_the_words_name_the_kinds_and_call_a_float_file_float():
    """The most frequent kinds first, the ninth and those after it as a number."""
    nodes = [CountedNode("Conv", True, 600), CountedNode("Conv", False, 400), *[CountedNode("Sigmoid", False)] * 3]
    assert float_words(float_facts(nodes)) == "4 of 5 nodes in float (3 Sigmoid, 1 Conv), 40.0% of the multiply-adds"
    nodes[0] = CountedNode("Conv", True, 300)
    assert float_words(float_facts(nodes)).startswith("int8 in name only: 4 of 5")
    assert float_words(float_facts([CountedNode("Conv", True, 1)])) == "0 of 1 nodes in float"
    assert float_words({}) == ""
    many = [CountedNode(f"Kind{number}", False) for number in range(10)]
    assert float_facts(many)["float_operators"].endswith("1 Kind7, 2 others")
