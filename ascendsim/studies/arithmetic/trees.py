"""The order of a reduction's additions as a tree, as FPRev draws them.

A leaf is the number of a product, or "c", what the accumulator begins with. A node is a tuple of what is
added before one rounding: two numbers, or more where a block is summed exactly (or cut and summed).
"""

from __future__ import annotations

from collections.abc import Iterator

from ascendsim.arguments import refusal, whole
from ascendsim.errors import ConfigError
from ascendsim.numerics.accumulation.models import AccumulationModel

Leaf = int | str
MOST = 1 << 20
Tree = Leaf | tuple["Tree", ...]


def reduction_tree(model: str | AccumulationModel, products: int, mmad: int | None = None) -> Tree:
    """Return the tree of one reduction.

    products   of the reduction
    mmad       of them in each Mmad; None: all
    Raises     ConfigError for a model whose block is no number yet, or for fewer than one product
    """
    model = AccumulationModel.parse(model) if isinstance(model, str) else model
    if not isinstance(model, AccumulationModel):
        raise refusal("reduction tree: model", model, "the text of a model, or a model")
    mmad = products if mmad is None else mmad
    for name, number in (("products", products), ("mmad", mmad)):
        # More leaves than anyone can look at.
        if (count := whole(number)) is None or count > MOST:
            raise refusal(f"reduction tree: {name}", number, f"a whole number from 1 to {MOST}")
    if not model.resolved or products < 1 or mmad < 1:
        raise ConfigError(
            f"reduction tree: model {model}, {products} products, {mmad} in an Mmad; the block of the model "
            "must be a number, and both others 1 or more"
        )
    if model.kind == "exact":
        return ("c", *range(products)) if products > 1 else ("c", 0)
    tree: Tree = "c"
    for first in range(0, products, mmad):
        for block in _blocks(model, range(first, min(first + mmad, products))):
            tree = _added(model, tree, block)
    return tree


def _blocks(model: AccumulationModel, numbers: range) -> Iterator[range]:
    """Yield the products that meet before a rounding; chains take them one by one."""
    size = {"seq": 1, "seq-muladd": 1, "exact-mmad": len(numbers)}.get(model.kind) or int(model.block)
    for first in range(0, len(numbers), size):
        yield numbers[first : first + size]


def _added(model: AccumulationModel, tree: Tree, block: range) -> Tree:
    if model.kind == "block-add" and len(block) > 1:
        return tree, tuple(block)
    if model.kind == "tree":
        return tree, _pairs(list(block), int(model.block), model.pairing)
    return (tree, *block)


def _pairs(leaves: list[int], size: int, pairing: str) -> Tree:
    """Return the tree over a block; missing leaves are zeros, which change no number, and are left out."""
    nodes: list[Tree | None] = [*leaves, *[None] * (size - len(leaves))]
    while len(nodes) > 1:
        half = len(nodes) // 2
        sides = (nodes[0::2], nodes[1::2]) if pairing == "adjacent" else (nodes[:half], nodes[half:])
        nodes = [_pair(left, right) for left, right in zip(*sides, strict=True)]
    (root,) = nodes
    assert root is not None
    return root


def _pair(left: Tree | None, right: Tree | None) -> Tree | None:
    if left is None or right is None:
        return left if right is None else right
    return left, right


def as_text(tree: Tree) -> str:
    """Return a tree in brackets: (((c 0) 1) 2)."""
    return f"({' '.join(map(as_text, tree))})" if isinstance(tree, tuple) else str(tree)


def as_dot(tree: Tree, name: str = "reduction") -> str:
    """Return a tree in the language of Graphviz."""
    lines = [f'digraph "{name}" {{']
    _draw(tree, lines)
    return "\n".join([*lines, "}"]) + "\n"


def _draw(tree: Tree, lines: list[str]) -> str:
    own = f"n{len(lines)}"
    label = "+" if isinstance(tree, tuple) else str(tree)
    lines.append(f'  {own} [label="{label}"];')
    for below in tree if isinstance(tree, tuple) else ():
        lines.append(f"  {own} -> {_draw(below, lines)};")
    return own
