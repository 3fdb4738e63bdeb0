"""Judges the code of a TorchScript archive by its operators, before PyTorch reads it: those of an allow-list, the archive's own functions.

The code is split into the tokens of PyTorch's own lexer, so that neither spaces nor line ends hide a name. An operator is called as
`torch.NAME`, as `ops.NAMESPACE.NAME`, or on a value as `x.NAME`, which PyTorch also looks up among its operators; `getattr(x, "NAME")` is
the same. `torch_operators.txt` has the names of PyTorch 2.13's ATen operators that compute and do nothing else: neither files nor other
machines nor training. Source: torch/csrc/jit/frontend/lexer.h, torch/csrc/jit/frontend/sugared_value.cpp, import_source.cpp (2.13).
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from importlib.resources import files
from itertools import pairwise

# Whole libraries of arithmetic; ATen by name.
LIBRARIES = "prims|higher_order|quantized|quantized_decomposed|torchao|mkldnn|onednn"
TORCHVISION = "q?nms|q?roi_align|roi_pool|ps_roi_align|ps_roi_pool|deform_conv2d|box_iou_rotated"
_PRIM = (
    "RaiseException|NumToTensor|Uninitialized|TupleIndex|TupleUnpack|EnumName|EnumValue|abs|data|device|dtype|grad|id|index|is_\\w+|itemsize|"
    "layout|max|min|name|nbytes|rangelist|requires_grad|tolist|type|unchecked_cast|unchecked_unwrap_optional|shape"
)
_TOKEN = re.compile(
    r"""(?P<space>[ \t\n]+)|(?P<text>"(?:[^"\\\n]|\\[^\n])*"|'(?:[^'\\\n]|\\[^\n])*')|(?P<name>[A-Za-z_]\w*)|"""
    r"""(?P<number>\d[\w.]*(?:(?<=[eE])[-+]\d+)?j?|\.\d+(?:[eE][-+]?\d+)?j?)|(?P<sign>->|[-+*/%=<>!&|^~@,.:;()\[\]{}]|$)""",
    re.ASCII,
)
# Roots of names that are no values.
_MODULES = ("torch", "ops", "__torch__", "CONSTANTS")
# Operators that a name of the archive's own must not hide; files, other processes and machines.
_REFUSED = frozenset(
    {"save", "load", "from_file", "read_file", "write_file", "load_library", "to_here", "rpc_sync", "rpc_async", "rpc_remote"}
)
_CLASSES = re.compile(rb"\btorch\.classes\.(?!(?:(?:quantized|rnn|xnnpack)\.)?$|(?:quantized|rnn|xnnpack)\.)[\w.]*")
_PART = re.compile(r"\w+")


@cache
def aten_operators() -> frozenset[str]:
    """Return the names of ATen's operators that models may call."""
    return frozenset(files(__package__).joinpath("torch_operators.txt").read_text(encoding="ascii").split())


def is_operator(name: str) -> bool:
    """Return whether `NAMESPACE.NAME` is an operator that models may call."""
    namespace, _, operator = name.partition(".")
    if namespace == "aten":
        return operator in aten_operators()
    pattern = {"prim": _PRIM, "torchvision": TORCHVISION}.get(namespace)
    return re.fullmatch(pattern, operator) is not None if pattern else namespace in LIBRARIES.split("|") and operator.isidentifier()


def refused(scripts: Iterable[bytes]) -> str | None:
    """Return what the files of the code use that no model may use, or why they cannot be judged; None if nothing."""
    try:
        files_tokens = [list(_tokens(script.decode("ascii"))) for script in scripts]
    except UnicodeDecodeError:
        return "names that are not ASCII"
    except ValueError as error:
        return str(error)
    declared = set[str]().union(*map(_declared, files_tokens))
    uses = (
        _judged(tokens, index, declared)
        for tokens in files_tokens
        for index, word in enumerate(tokens)
        if word in {".", "getattr", *_MODULES}
    )
    return next((use for use in uses if use), None)


def _declared(tokens: Sequence[str]) -> set[str]:
    """Return the names of attributes, functions and classes in one file; those that are no identifiers stand as texts."""
    pairs = list(pairwise(tokens))
    names = {first for first, second in pairs if second == ":"} | {second for first, second in pairs if first in {"def", "class"}}
    return names | {word[1:-1] for word in tokens if word[0] in "\"'"}


def refused_class(pickled: bytes) -> str | None:
    """Return the class of PyTorch's C++ that a pickle of the archive would make, if it is none that holds weights."""
    match = _CLASSES.search(pickled.replace(b"\n", b"."))
    return match[0].decode("ascii", "replace") if match else None


def _tokens(script: str) -> Iterator[str]:
    position = 0
    while position < len(script):
        match = _TOKEN.match(script, position)
        if match is None or not match[0] or script.startswith(('"""', "'''"), position):
            raise ValueError(f"the sign {script[position]!r}, which serialised code has not")
        position = match.end()
        if match.lastgroup != "space":
            yield match[0]


def _judged(tokens: Sequence[str], index: int, declared: set[str]) -> str | None:
    word, following = tokens[index], tokens[index + 1] if index + 1 < len(tokens) else ""
    if word == "getattr":
        return _judged_getattr(tokens, index)
    if word in _MODULES:
        # As a value it could be given another name.
        is_part = index > 0 and tokens[index - 1] == "."
        return None if is_part or following == "." else f"{word} as a value"
    chain = _chain(tokens, index)
    path = ".".join((*chain, following))
    return None if following not in _REFUSED and _may_follow(chain, following, declared) else path


def _may_follow(chain: Sequence[str], name: str, declared: set[str]) -> bool:
    """Return whether `name` may be looked up in the names of `chain`, or in a value where there are none."""
    root = chain[0] if chain else ""
    if root == "torch":
        return len(chain) == 1 and is_operator(f"aten.{name}")
    if root == "ops":
        return len(chain) == 1 or (len(chain) == 2 and is_operator(f"{chain[1]}.{name}"))
    if root == "__torch__":
        return _CLASSES.search(".".join((*chain, name, "")).encode()) is None
    # `tolist` is of the language: it becomes an operator of its own, prim.tolist.
    return root == "CONSTANTS" or name in declared or name in aten_operators() or name == "tolist"


def _chain(tokens: Sequence[str], index: int) -> list[str]:
    """Return the names before the dot at `index`, as far as they are parts of one; none if the dot follows a value."""
    names: list[str] = []
    while index > 0 and tokens[index] == "." and _PART.fullmatch(tokens[index - 1]):
        names.insert(0, tokens[index - 1])
        index -= 2
    return [] if index >= 0 and tokens[index] == "." else names


def _judged_getattr(tokens: Sequence[str], index: int) -> str | None:
    """Return why this use of `getattr` may not stand: it names an operator that may not be called, or names nothing plainly."""
    if tokens[index + 1 : index + 2] != ["("]:
        return "getattr as a value"
    depth = 0
    for position in range(index + 1, len(tokens)):
        word = tokens[position]
        depth += (word in "([{") - (word in ")]}")
        if word[0] in "\"'" and depth == 1 and (not _PART.fullmatch(word[1:-1]) or word[1:-1] in _REFUSED):
            return f"getattr of {word}"
        if depth == 0:
            return None
    return "getattr without an end"
