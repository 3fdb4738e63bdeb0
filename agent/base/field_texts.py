"""The documentation of the fields of a class, for schemas, reference pages and option help."""

import ast
import inspect
from collections.abc import Iterator
from io import StringIO
from itertools import pairwise
from tokenize import COMMENT, generate_tokens
from types import ModuleType


def field_texts(*modules: ModuleType) -> dict[str, dict[str, str]]:
    """Return the documentation of the fields of the classes in these modules.

    It is by class and field, each as one line.
    """
    return {
        name: texts for module in modules for name, texts in _texts_in(inspect.getsource(module))
    }


def _texts_in(source: str) -> Iterator[tuple[str, dict[str, str]]]:
    comments = {
        token.start[0]: token.string
        for token in generate_tokens(StringIO(source).readline)
        if token.type == COMMENT
    }
    for node in ast.parse(source).body:
        if isinstance(node, ast.ClassDef):
            texts = {}
            for field, follower in pairwise([*node.body, ast.Pass()]):
                if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                    text = (
                        ast.literal_eval(follower.value)
                        if isinstance(follower, ast.Expr)
                        else comments.get(field.end_lineno or 0, "")
                    )
                    texts[field.target.id] = " ".join(text.removeprefix("# ").split())
            yield node.name, texts
