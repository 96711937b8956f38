"""Find the places of some parts of the package that a mutant may change, and draw among them by a seed."""

import ast
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "ascendsim"
# What is drawn from unless other parts are named: the arithmetic.
PARTS = ("numerics",)


class Mutant(NamedTuple):
    """One change: a file below `ascendsim`, the place in it, what stands there, what is put there.

    line, column   the line as it stands, without blanks before it, and where in it the change begins
    above          how often the same line stands above it in the file
    """

    file: str
    start: int
    stop: int
    old: str
    new: str
    line: str
    column: int
    above: int = 0

    @property
    def name(self) -> str:
        """Say it in one line, the same as long as the line of the source stands."""
        return named(self._asdict())


def named(fields: Mapping[str, Any]) -> str:
    """Name a mutant by its file, its line, and the change; a line that stands there again, by which it is."""
    again = f" #{fields['above'] + 1}" if fields.get("above") else ""
    return "{file}: {line}{again} [{column}: {old} -> {new}]".format_map({**fields, "again": again})


COMPARISONS = {
    ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "==", ast.Is: "is not",
}  # fmt: skip
OPERATORS = {
    ast.Add: "-", ast.Sub: "+", ast.Mult: "+", ast.Div: "*", ast.FloorDiv: "*", ast.Mod: "*", ast.Pow: "*",
    ast.LShift: ">>", ast.RShift: "<<", ast.BitAnd: "|", ast.BitOr: "&", ast.BitXor: "&",
}  # fmt: skip
SIGNS = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%", ast.Pow: "**",
    ast.LShift: "<<", ast.RShift: ">>", ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^", ast.Lt: "<",
    ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!=", ast.Is: "is", ast.And: "and",
    ast.Or: "or",
}  # fmt: skip
NOT_COMPUTED = (ast.Raise, ast.Assert, ast.JoinedStr)
STRICT = ast.dump(ast.keyword("strict", ast.Constant(True)))
CALLS = {"min": "max", "max": "min", "all": "any", "any": "all", "minimum": "maximum", "maximum": "minimum"}


class Places:
    """Find all places of one file that a mutant may change."""

    def __init__(self, file: Path) -> None:
        self.name = file.relative_to(PACKAGE).as_posix().removesuffix(".py")
        self.text = file.read_text()
        lines = self.text.splitlines(keepends=True)
        self.above = _repeated([line.strip() for line in lines])
        # Columns of the syntax tree count bytes; these sources are ASCII but for a few comments.
        self.begins = [sum(len(line) for line in lines[:index]) for index in range(len(lines))]

    def found(self) -> list[Mutant]:
        """Return the mutants of this file, in order."""
        made = {mutant[:5]: mutant for node in self._nodes(ast.parse(self.text)) for mutant in self._of(node)}
        return sorted(made.values())

    def _nodes(self, node: ast.AST) -> Iterator[ast.AST]:
        """Walk through what is computed: not through types, errors, checks, texts and how caches are kept."""
        for field, child in ast.iter_fields(node):
            if field in ("annotation", "returns", "bases", "decorator_list", "type_params"):
                continue
            for one in child if isinstance(child, list) else [child]:
                # That what is zipped is equally long is as good as asserted.
                asserted = isinstance(one, ast.keyword) and ast.dump(one) == STRICT
                if isinstance(one, ast.AST) and not (asserted or isinstance(one, NOT_COMPUTED)):
                    yield one
                    yield from self._nodes(one)

    def _of(self, node: ast.AST) -> Iterator[Mutant]:
        match node:
            case ast.Compare(left=left, ops=[operator], comparators=[right]) if type(operator) in COMPARISONS:
                yield from self._between(left, right, SIGNS[type(operator)], COMPARISONS[type(operator)])
            case ast.BinOp(left=left, op=operator, right=right) if type(operator) in OPERATORS:
                yield from self._between(left, right, SIGNS[type(operator)], OPERATORS[type(operator)])
            case ast.BoolOp(op=operator, values=[first, second, *_]):
                sign = SIGNS[type(operator)]
                yield from self._between(first, second, sign, "or" if sign == "and" else "and")
            case ast.UnaryOp(op=ast.Not() | ast.USub() | ast.Invert(), operand=operand):
                yield self._change(node, self._source(operand))
            case ast.Constant(value=bool() as value):
                yield self._change(node, str(not value))
            case ast.Constant(value=int() as value):
                yield self._change(node, str(value + 1))
                yield self._change(node, str(value - 1))
            case ast.Constant(value=float() as value):
                yield self._change(node, repr(2 * value or 1.0))
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)) if name in CALLS:
                source = self._source(node.func)
                yield self._change(node.func, source.removesuffix(name) + CALLS[name])
            case ast.If(test=test) | ast.IfExp(test=test) | ast.While(test=test):
                yield self._change(test, f"not ({self._source(test)})")
            # Left out without a name missing after it, which any test would notice.
            case ast.AugAssign() | ast.Expr(value=ast.Call()) | ast.Assign(targets=[ast.Subscript()]):
                yield self._change(node, "pass")
            case ast.FunctionDef(decorator_list=[*_, ast.Name(id="default_arithmetic") as name]):
                yield self._change(name, "staticmethod")

    def _between(self, left: ast.expr, right: ast.expr, old: str, new: str) -> Iterator[Mutant]:
        start, stop = self._span(left)[1], self._span(right)[0]
        # Brackets and comments may stand there too.
        place = self.text.find(f" {old} ", start, stop) + 1
        if place or self.text[start:stop] == old:
            yield self._made(place or start, (place or start) + len(old), new)

    def _change(self, node: ast.AST, new: str) -> Mutant:
        return self._made(*self._span(node), new)

    def _made(self, start: int, stop: int, new: str) -> Mutant:
        begin = self.text.rfind("\n", 0, start) + 1
        line = self.text[begin : self.text.find("\n", start)]
        blanks = len(line) - len(line.lstrip())
        column = start - begin - blanks
        above = self.above[self.text.count("\n", 0, start)]
        return Mutant(self.name, start, stop, self.text[start:stop], new, line.strip(), column, above)

    def _span(self, node: ast.AST) -> tuple[int, int]:
        place = (node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset)  # type: ignore[attr-defined]
        start, stop = (self.begins[line - 1] + column for line, column in place)
        return start, stop

    def _source(self, node: ast.AST) -> str:
        return self.text[slice(*self._span(node))]


def _repeated(lines: Sequence[str]) -> list[int]:
    """Return of each line how often the same one stands above it."""
    seen: Counter[str] = Counter()
    above = []
    for line in lines:
        above.append(seen[line])
        seen[line] += 1
    return above


def every_mutant(parts: Sequence[str] = PARTS) -> list[Mutant]:
    """Return all mutants of some parts, which are folders or files below `ascendsim`, file after file."""
    files = sorted(
        file
        for part in parts
        for file in (
            (PACKAGE / part).rglob("*.py") if (PACKAGE / part).is_dir() else [PACKAGE / f"{part}.py"]
        )
    )
    return [mutant for file in files for mutant in Places(file).found()]


def drawn(seed: int, parts: Sequence[str] = PARTS) -> list[Mutant]:
    """Return all mutants of some parts in an order drawn by a seed."""
    mutants = every_mutant(parts)
    random.Random(seed).shuffle(mutants)
    return mutants
