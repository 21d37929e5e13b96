"""Says which dotted name an expression stands for: imports, their aliases, plain assignments, and what hides them.

`from torch.cuda import amp as a` makes `a.autocast` mean `torch.cuda.amp.autocast`; a parameter called `torch` means
nothing. Names that torch exports twice get one spelling. Knows no types. Used by source.py.
"""

from __future__ import annotations

__all__ = ["Names", "one_spelling"]

import ast
import builtins

# Prefixes of names that torch exports under a shorter name too.
_SPELLINGS = (
    ("torch.cuda.amp.autocast_mode.", "torch.cuda.amp."),
    ("torch.cuda.amp.grad_scaler.", "torch.cuda.amp."),
    ("torch.amp.autocast_mode.", "torch.amp."),
    ("torch.amp.grad_scaler.", "torch.amp."),
    ("torch.autocast_mode.", "torch.amp."),
    ("torch.cuda.memory.", "torch.cuda."),
    ("torch.cuda.random.", "torch.cuda."),
    ("torch.cuda.streams.", "torch.cuda."),
    ("torch.cuda.graphs.", "torch.cuda."),
    ("torch.distributed.distributed_c10d.", "torch.distributed."),
    ("torch.distributed.device_mesh.", "torch.distributed."),
    ("torch.distributed._tensor.", "torch.distributed."),
    ("torch.distributed.tensor.", "torch.distributed."),
    ("torch.nn.parallel.distributed.", "torch.nn.parallel."),
    ("torch.nn.parallel.data_parallel.", "torch.nn.parallel."),
    ("torch.nn.DataParallel", "torch.nn.parallel.DataParallel"),
    ("torch.utils.data.dataloader.", "torch.utils.data."),
    ("torch.serialization.load", "torch.load"),
    ("torch.random.manual_seed", "torch.manual_seed"),
    ("torch.autocast", "torch.amp.autocast"),
    ("torch.profiler.profiler.", "torch.profiler."),
    ("torch._inductor.config.", "torch._inductor.config."),
)

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_SCOPES = (ast.Module, ast.ClassDef, *_FUNCTIONS, *_COMPREHENSIONS)
Binding = str | ast.expr | None


def one_spelling(name: str) -> str:
    """The short name of what torch exports twice."""
    for long, short in _SPELLINGS:
        if name.startswith(long):
            return short + name[len(long) :]
    return name


class Scope:
    """Names bound in a module, class, function or comprehension: to a dotted name, an expression, or something else."""

    __slots__ = ("bindings", "node", "parent", "stars")

    def __init__(self, node: ast.AST, parent: Scope | None):
        self.node = node
        self.parent = parent
        self.bindings: dict[str, Binding] = {}
        self.stars: list[str] = []

    def bind(self, name: str, value: Binding) -> None:
        """An import wins over anything else; two different values are unknown."""
        known = self.bindings.get(name)
        if isinstance(known, str):
            return
        if isinstance(value, str) or name not in self.bindings:
            self.bindings[name] = value
        elif known is not None and not (isinstance(value, ast.expr) and ast.dump(value) == ast.dump(known)):
            self.bindings[name] = None


class Names:
    """The names of one module. `parents` maps each node to its parent."""

    def __init__(self, tree: ast.Module):
        self.parents: dict[ast.AST, ast.AST] = {}
        self.nodes: list[ast.AST] = []
        self.roots: set[str] = set()
        self._scopes: dict[ast.AST, Scope] = {}
        self._known: dict[ast.AST, str | None] = {}
        self._collect(tree)

    def scope(self, node: ast.AST) -> Scope:
        """The innermost scope around a node."""
        at: ast.AST | None = node
        while at is not None and at not in self._scopes:
            at = self.parents.get(at)
        assert at is not None
        return self._scopes[at]

    def of(self, node: ast.AST | None, depth: int = 0) -> str | None:
        """The dotted name that an expression stands for, in one spelling, or None."""
        if not isinstance(node, ast.Name | ast.Attribute) or depth > 8:
            return None
        if node not in self._known:
            self._known[node] = self._find(node, depth)
        return self._known[node]

    def bound_to(self, node: ast.Name) -> ast.expr | None:
        """The one expression that was assigned to a name, or None."""
        value = self._lookup(node)
        return value if isinstance(value, ast.expr) else None

    def _find(self, node: ast.Name | ast.Attribute, depth: int) -> str | None:
        if isinstance(node, ast.Attribute):
            owner = self.of(node.value, depth + 1)
            return one_spelling(f"{owner}.{node.attr}") if owner else None
        value = self._lookup(node)
        if isinstance(value, str):
            return one_spelling(value)
        return self.of(value, depth + 1) if value is not node else None

    def _lookup(self, node: ast.Name) -> Binding:
        scope: Scope | None = self.scope(node)
        first = True
        while scope is not None:
            if node.id in scope.bindings and (first or not isinstance(scope.node, ast.ClassDef)):
                return scope.bindings[node.id]
            if scope.stars and scope.parent is None and not hasattr(builtins, node.id):
                return f"{scope.stars[0]}.{node.id}"
            first = False
            scope = scope.parent
        return "torch" if node.id == "torch" else None  # from a star import of something else

    def _collect(self, tree: ast.Module) -> None:
        stack: list[tuple[ast.AST, Scope | None]] = [(tree, None)]
        while stack:
            node, scope = stack.pop()
            if isinstance(node, _SCOPES):
                scope = self._scopes[node] = Scope(node, scope)
                self._parameters(node, scope)
            assert scope is not None
            self.nodes.append(node)
            self._bindings(node, scope)
            for child in reversed(list(ast.iter_child_nodes(node))):
                if not isinstance(child, ast.expr_context | ast.operator | ast.boolop | ast.cmpop | ast.unaryop):
                    self.parents[child] = node
                    stack.append((child, scope))

    @staticmethod
    def _parameters(node: ast.AST, scope: Scope) -> None:
        if isinstance(node, _FUNCTIONS):
            arguments = node.args
            extra = [one for one in (arguments.vararg, arguments.kwarg) if one]
            for one in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, *extra):
                scope.bind(one.arg, None)

    def _bindings(self, node: ast.AST, scope: Scope) -> None:
        if isinstance(node, ast.Import):
            for alias in node.names:
                root = alias.name.split(".")[0]
                self.roots.add(root)
                scope.bind(alias.asname or root, alias.name if alias.asname else root)
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            if not node.level:
                self.roots.add(module.split(".")[0])
            for alias in node.names:
                if alias.name == "*":
                    if module.split(".")[0] == "torch":
                        scope.stars.append(module)
                else:
                    scope.bind(alias.asname or alias.name, f"{module}.{alias.name}")
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            if scope.parent is not None:
                scope.parent.bind(node.name, None)
        elif isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            scope.bind(node.targets[0].id, node.value)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
            scope.bind(node.target.id, node.value)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            parent = self.parents[node]
            plain = isinstance(parent, ast.AnnAssign) or (isinstance(parent, ast.Assign) and len(parent.targets) == 1)
            if not plain:
                scope.bind(node.id, None)
        elif isinstance(node, ast.ExceptHandler) and node.name:
            scope.bind(node.name, None)
