"""Facts about names: a class has its name to itself."""

import ast
from collections import defaultdict

from tests.fixtures.own_imports import MODULES, ROOT

PRODUCT = [*MODULES, *sorted((ROOT / "api").rglob("*.py"))]


def test_a_class_has_its_name_to_itself():
    """Across the packages, nested and private classes included: a name says what the class belongs to (`RunPlan`, `CampaignPlan`)."""
    files_of = defaultdict(list)
    for path in PRODUCT:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                files_of[node.name].append(str(path.relative_to(ROOT)))
    assert {name: files for name, files in files_of.items() if len(files) > 1} == {}
