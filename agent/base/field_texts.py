"""The texts that stand below the fields of a class, as a schema, a reference page and an option's help show them."""

import ast
import inspect
from itertools import pairwise
from types import ModuleType


def field_texts(*modules: ModuleType) -> dict[str, dict[str, str]]:
    """Return the texts below the fields of the classes in these modules, by class and field, each as one line."""
    classes = [node for module in modules for node in ast.parse(inspect.getsource(module)).body if isinstance(node, ast.ClassDef)]
    return {
        node.name: {
            field.target.id: " ".join(ast.literal_eval(text.value).split())
            for field, text in pairwise(node.body)
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(text, ast.Expr)
        }
        for node in classes
    }
