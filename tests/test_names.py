"""Facts about names and docstrings.

A class has its name to itself, a variable says what it holds, and a first line is a sentence.
"""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from symtable import SymbolTable, symtable

from tests.fixtures.own_imports import INTERFACE, MODULES, ROOT, tree

PRODUCT = [*MODULES, *sorted(INTERFACE.glob("*.py"))]
TESTS_AND_TOOLS = [
    path for name in ("tests", "tools") for path in sorted((ROOT / name).rglob("*.py"))
]
# They say how a value came about, or nothing: a record is `record`, what a command ended with
# `result`, a folder `folder`.
GENERIC = """one found place known wanted own beside rest left said held kept made done asked seen
    told given taken shown stated chosen needed caught drawn ours theirs there here what whole again
    more most some every others piece"""


def bound_names(table: SymbolTable) -> Iterator[str]:
    """Yield the variables, arguments and functions of a module.

    Attributes and methods belong to their class.
    """
    if table.get_type() != "class":
        yield from (
            symbol.get_name()
            for symbol in table.get_symbols()
            if symbol.is_assigned() or symbol.is_parameter()
        )
    for child in table.get_children():
        yield from bound_names(child)


def test_a_variable_is_named_after_its_value():
    """Product, tests and tools: no variable, argument or function has one of the generic names."""
    words = set(GENERIC.split())
    generic = {
        str(path.relative_to(ROOT)): sorted(names)
        for path in (*PRODUCT, *TESTS_AND_TOOLS)
        if (names := words.intersection(bound_names(symtable(path.read_text(), path.name, "exec"))))
    }
    assert generic == {}


def test_a_class_has_its_name_to_itself_and_no_docstring_begins_with_what():
    """No two classes share a name, and no docstring of the product begins with `What`.

    Across the packages a name says what the class belongs to (`RunPlan`, `CampaignPlan`); `The cost
    of a run` says what a thing is.
    """
    files_of = defaultdict(list)
    begun = []
    for path in PRODUCT:
        name = str(path.relative_to(ROOT))
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.ClassDef):
                files_of[node.name].append(name)
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                text = ast.get_docstring(node, clean=False) or ""
                begun += [f"{name}: {text[:60]}"] if text.startswith("What ") else []
    assert {name: files for name, files in files_of.items() if len(files) > 1} == {}
    assert begun == []


def test_no_comment_begins_with_what_or_of():
    """No comment of product, tests and docs begins with `What` or `Of`.

    A comment has a subject and a verb; a relative clause without a noun has to be read twice.
    """
    begun = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for path in (
            *PRODUCT,
            *TESTS_AND_TOOLS,
            *sorted((ROOT / "docs").rglob("*.py")),
        )
        for line in path.read_text().splitlines()
        if re.search(r"(^|\s)# (What|Of)\b", line)
    ]
    assert begun == []
