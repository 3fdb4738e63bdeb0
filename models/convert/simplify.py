"""What converters cannot write is written otherwise in the graph of an exported program, without another answer.

A traced model works out sizes and grids each time it runs, from numbers that never change; LiteRT's converter cannot follow numbers that
come out of tensors, nor a square written as a power. What does not depend on the input becomes a constant, and a square a product.
"""

from typing import Any

_LITERALS = (bool, int, float)


def simplify(module: Any, example: Any) -> Any:
    """Return the program's module (torch.fx.GraphModule), changed in place, for inputs of the example's shape.

    One that writes into its own tensors is returned as it is: what is written later must not become a constant.
    """
    import torch  # noqa: PLC0415 - extra `convert`

    calls = [node for node in module.graph.nodes if node.op == "call_function"]
    if any(getattr(getattr(node.target, "_schema", None), "is_mutable", False) for node in calls):
        return module
    with torch.no_grad():
        fixed = _fixed(module, example)
    for node in calls:
        if "pow" in str(node.target) and _exponent(node, fixed) == 2:
            _square(module, node)
        elif node in fixed:
            _replace(module, node, fixed[node])
    module.graph.eliminate_dead_code()
    module.recompile()
    return module


def _fixed(module: Any, example: Any) -> dict[Any, Any]:
    """Return the values of all nodes that are the same for every input of this shape."""
    import torch  # noqa: PLC0415 - extra `convert`

    class Watch(torch.fx.Interpreter):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__(module)
            self.fixed: dict[Any, Any] = {}

        def run_node(self, n: Any) -> Any:
            value = super().run_node(n)
            is_random = torch.Tag.nondeterministic_seeded in getattr(n.target, "tags", ())
            follows = all(given in self.fixed for given in n.all_input_nodes) and not is_random
            if n.op == "get_attr" or (n.op == "call_function" and (follows or "sym_size" in str(n.target))):
                self.fixed[n] = value
            return value

    watch = Watch()
    watch.run(example)
    return watch.fixed


def _replace(module: Any, node: Any, value: Any) -> None:
    """Put a number, or a tensor that the module keeps, in a node's place."""
    import torch  # noqa: PLC0415 - extra `convert`

    if isinstance(value, _LITERALS):
        for user in list(node.users):
            user.args = torch.fx.map_arg(user.args, lambda given: value if given is node else given)
            user.kwargs = torch.fx.map_arg(user.kwargs, lambda given: value if given is node else given)
    elif isinstance(value, torch.Tensor):
        name = f"constant_{node.name}"
        module.register_buffer(name, value.clone())
        with module.graph.inserting_before(node):
            node.replace_all_uses_with(module.graph.get_attr(name))


def _exponent(node: Any, fixed: dict[Any, Any]) -> float | None:
    """Return the exponent of a power where it is one number."""
    import torch  # noqa: PLC0415 - extra `convert`

    given = node.args[1] if len(node.args) > 1 else None
    value = fixed.get(given, given) if isinstance(given, torch.fx.Node) else given
    if isinstance(value, torch.Tensor):
        return float(value) if value.numel() == 1 and value.ndim == 0 else None
    return float(value) if isinstance(value, _LITERALS) else None


def _square(module: Any, node: Any) -> None:
    import torch  # noqa: PLC0415 - extra `convert`

    if isinstance(node.args[0], torch.fx.Node):
        with module.graph.inserting_before(node):
            node.replace_all_uses_with(module.graph.call_function(torch.ops.aten.mul.Tensor, (node.args[0], node.args[0])))
