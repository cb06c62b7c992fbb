"""The mutants of a source text: each changes one thing.

Left alone: annotations, docstrings, ``__all__``; sentences (text with a space between words, f-strings), which tests
match where they matter; and the keywords of :data:`KEYWORDS`.
"""

import ast
import re
from collections import Counter
from dataclasses import dataclass
from types import CodeType

KEYWORDS = {
    "strict": "of zip: raises for a caller's mistake that no caller makes",
    "slots": "of dataclass: saves memory, changes no value",
    "use_attribute_docstrings": "of pydantic: words in a schema that nothing reads",
}
"""Not mutated, and why"""

_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.Mod: ast.Mult,
    ast.Pow: ast.Mult,
}
_NAMES = {"min": "max", "max": "min", "any": "all", "all": "any"}
_SENTENCE = re.compile(r"\w[^\w\s]* \W*\w")


@dataclass(frozen=True)
class Mutant:
    """One change. ``line``, ``change`` and ``nth`` name it through edits elsewhere in the file."""

    index: int
    line_number: int
    line: str
    """the line it stands in, without the spaces around it"""
    change: str
    nth: int
    """which of those alike in this file, from 1"""
    in_function: bool
    """changes code of a function alone, which can be put into one that is loaded already"""

    @property
    def key(self) -> tuple[str, str, int]:
        """What names it in a record."""
        return self.line, self.change, self.nth


def mutants(source: str) -> list[Mutant]:
    """All mutants of ``source``, in a fixed order."""
    changer = _Changer(-1)
    changer.visit(ast.parse(source))
    lines, seen, found = source.splitlines(), Counter[tuple[str, str]](), []
    for index, (number, change, in_function) in enumerate(changer.found):
        line = lines[number - 1].strip()
        seen[line, change] += 1
        found.append(Mutant(index, number, line, change, seen[line, change], in_function))
    return found


def mutated(source: str, index: int, path: str) -> CodeType:
    """The code of ``source`` with mutant ``index``; lines stay where they are."""
    return compile(ast.fix_missing_locations(_Changer(index).visit(ast.parse(source))), path, "exec")


class _Changer(ast.NodeTransformer):
    """Lists every change, and makes the one of number ``target``."""

    def __init__(self, target: int) -> None:
        self.found: list[tuple[int, str, bool]] = []
        self._target = target
        self._depth = 0

    def _hit(self, node: ast.expr | ast.stmt, change: str) -> bool:
        self.found.append((node.lineno, change, self._depth > 0))
        return len(self.found) - 1 == self._target

    def _negated(self, test: ast.expr, change: str) -> ast.expr:
        hit = self._hit(test, change)
        return ast.copy_location(ast.UnaryOp(ast.Not(), test), test) if hit else test

    def _without(self, node: ast.stmt, change: str) -> ast.stmt:
        return ast.copy_location(ast.Pass(), node) if self._hit(node, change) else node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        # Decorators and defaults are made when the module is loaded, the body when it is called.
        node.decorator_list = [self.visit(decorator) for decorator in node.decorator_list]
        node.args.defaults = [self.visit(default) for default in node.args.defaults]
        node.args.kw_defaults = [default and self.visit(default) for default in node.args.kw_defaults]
        self._depth += 1
        node.body = [self.visit(statement) for statement in node.body]
        self._depth -= 1
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        node.value = node.value and self.visit(node.value)
        return node

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        target = node.targets[0]
        if isinstance(target, ast.Name) and target.id == "__all__":
            return node
        self.generic_visit(node)
        return node if isinstance(target, ast.Name | ast.Tuple) else self._without(node, "assignment left out")

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AST:
        self.generic_visit(node)
        return self._without(node, "assignment left out")

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        if isinstance(node.value, ast.Constant):
            return node
        self.generic_visit(node)
        return self._without(node, "call left out") if isinstance(node.value, ast.Call) else node

    def visit_Raise(self, node: ast.Raise) -> ast.AST:
        self.generic_visit(node)
        return self._without(node, "raise left out")

    def visit_Delete(self, node: ast.Delete) -> ast.AST:
        self.generic_visit(node)
        return self._without(node, "del left out")

    def visit_Break(self, node: ast.Break) -> ast.AST:
        return ast.copy_location(ast.Continue(), node) if self._hit(node, "break -> continue") else node

    def visit_Continue(self, node: ast.Continue) -> ast.AST:
        return ast.copy_location(ast.Break(), node) if self._hit(node, "continue -> break") else node

    def visit_Return(self, node: ast.Return) -> ast.AST:
        self.generic_visit(node)
        is_none = node.value is None or (isinstance(node.value, ast.Constant) and node.value.value is None)
        if not is_none and self._hit(node, "return None"):
            node.value = ast.copy_location(ast.Constant(None), node)
        return node

    def visit_If(self, node: ast.If) -> ast.AST:
        self.generic_visit(node)
        node.test = self._negated(node.test, "if -> if not")
        return node

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        self.generic_visit(node)
        node.test = self._negated(node.test, "else-expression negated")
        return node

    def visit_comprehension(self, node: ast.comprehension) -> ast.AST:
        self.generic_visit(node)
        node.ifs = [self._negated(test, "comprehension's if negated") for test in node.ifs]
        return node

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        self.generic_visit(node)
        for place, operator in enumerate(node.ops):
            other = _COMPARISONS[type(operator)]
            if self._hit(node, f"{type(operator).__name__} -> {other.__name__}"):
                node.ops[place] = other()
        return node

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        other = _OPERATORS[type(node.op)]
        if self._hit(node, f"{type(node.op).__name__} -> {other.__name__}"):
            node.op = other()
        return node

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        self.generic_visit(node)
        other = ast.And if isinstance(node.op, ast.Or) else ast.Or
        if self._hit(node, f"{type(node.op).__name__} -> {other.__name__}"):
            node.op = other()
        return node

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        self.generic_visit(node)
        changed = isinstance(node.op, ast.Not | ast.USub) and self._hit(node, f"{type(node.op).__name__} left out")
        return node.operand if changed else node

    def visit_Name(self, node: ast.Name) -> ast.AST:
        other = _NAMES.get(node.id)
        if other and self._hit(node, f"{node.id} -> {other}"):
            node.id = other
        return node

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        value = node.value
        other: bool | int | float | bytes | str | None = None
        if isinstance(value, bool):
            other = not value
        elif isinstance(value, int):
            other = value + 1
        elif isinstance(value, float):
            other = value * 1.1 + 0.01
        elif isinstance(value, bytes):
            other = b"" if value else b"~"
        elif isinstance(value, str) and not _SENTENCE.search(value):
            other = "" if value else "~"
        if other is not None and self._hit(node, f"{value!r} -> {other!r}"):
            return ast.copy_location(ast.Constant(other), node)
        return node

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.AST:
        return node

    def visit_keyword(self, node: ast.keyword) -> ast.AST:
        return node if node.arg in KEYWORDS else self.generic_visit(node)
