"""Facts about names and docstrings: a class has its name to itself, and a first line is a sentence."""

import ast
from collections import defaultdict

from tests.fixtures.own_imports import INTERFACE, MODULES, ROOT

PRODUCT = [*MODULES, *sorted((ROOT / INTERFACE).rglob("*.py"))]


def test_a_class_has_its_name_to_itself():
    """Across the packages, nested and private classes included: a name says what the class belongs to (`RunPlan`, `CampaignPlan`)."""
    files_of = defaultdict(list)
    for path in PRODUCT:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                files_of[node.name].append(str(path.relative_to(ROOT)))
    assert {name: files for name, files in files_of.items() if len(files) > 1} == {}


def test_no_docstring_begins_with_what():
    """`What a run costs` names a question; `The cost of a run` and `Return the cost` say what the thing is."""
    begun = []
    for path in PRODUCT:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                text = ast.get_docstring(node) or ""
                begun += [f"{path.relative_to(ROOT)}: {text[:60]}"] if text.startswith("What ") else []
    assert begun == []
