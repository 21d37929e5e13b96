"""The rules of the layers, checked on the syntax tree of every module. Each rule says why it is there.

A module may import from its own row or from one above it (a lower number). An exception is one line in ALLOWED, with
its reason; it is an error when the reason is gone.
"""

from __future__ import annotations

import ast
import dataclasses
import pathlib
from collections.abc import Iterator

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "torch_pjrt"

ROWS = {
    "errors": 0,
    "config": 0,
    "logs": 0,
    "_version": 0,
    "counters": 0,
    "ops": 1,
    "lowerings": 2,
    "program": 3,
    "pjrt": 4,
    "tensor": 5,
    "dispatch": 6,
    "compile": 7,
    "export": 7,
    "aot": 7,
    "distributed": 7,
    "kernels": 7,
    "profile": 7,
    "plan": 7,
    "check": 7,
    "port": 7,
    "integrations": 8,
    "cli": 8,
    "testing": 8,
    "_autoload": 9,
    "__init__": 9,
}
BANNED_NAMES = {"utils", "helpers", "common", "misc", "base", "core"}
LONGEST_FILE = 500

# (module or folder, rule): why.
ALLOWED = {
    ("ops/registry.py", "layers"): "loads the modules of rows by name",
    ("integrations/cuda_alias", "private torch"): "`with torch.device(...)` has no public hook",
    ("integrations/cuda_alias", "vendor"): "stands in for torch.cuda, by its name",
    ("testing", "print"): "its modules are commands for developers",
    ("testing", "private torch"): "OpInfo is in torch.testing._internal",
}

# Names that are private by spelling only: torch's own documentation sends extension authors to them.
OPEN_IN_TORCH = (
    "torch._ops.OpOverload",
    "torch._decomp.decomposition_table",
    "torch.utils._python_dispatch",
    "torch.utils._pytree",
)


@dataclasses.dataclass(frozen=True)
class Breach:
    """One place where a rule is broken."""

    module: str
    line: int
    rule: str
    what: str

    def __str__(self) -> str:
        return f"torch_pjrt/{self.module}:{self.line}: {self.rule}: {self.what}"


@dataclasses.dataclass(frozen=True)
class Module:
    """A parsed module; `path` is relative to the package."""

    path: str
    tree: ast.Module

    @property
    def part(self) -> str:
        """The first component: the name of its folder, or of itself."""
        return self.path.split("/")[0].removesuffix(".py")

    def imports(self) -> Iterator[tuple[int, str]]:
        """(line, full name) of everything imported, at any depth."""
        package = ("torch_pjrt/" + self.path).split("/")[:-1]
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    yield node.lineno, alias.name
            elif isinstance(node, ast.ImportFrom):
                start = ".".join(package[: len(package) - node.level + 1]) if node.level else ""
                origin = ".".join(filter(None, (start, node.module)))
                for alias in node.names:
                    yield node.lineno, f"{origin}.{alias.name}"

    def attributes(self) -> Iterator[tuple[int, str]]:
        """(line, dotted name) of every attribute read, as `torch._C._acc`."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Attribute):
                yield node.lineno, ast.unparse(node)


def modules() -> list[Module]:
    """Every module of the package."""
    paths = sorted(PACKAGE.rglob("*.py"))
    return [Module(path.relative_to(PACKAGE).as_posix(), ast.parse(path.read_text())) for path in paths]


def layers(module: Module) -> Iterator[tuple[int, str]]:
    """An op travels down the rows; a module that reaches below its own row ties a knot."""
    for line, name in module.imports():
        words = name.split(".")
        if words[0] != "torch_pjrt" or len(words) < 2 or words[1] not in ROWS:
            continue
        if ROWS[words[1]] > ROWS[module.part]:
            yield line, f"{module.part} (row {ROWS[module.part]}) imports {name} (row {ROWS[words[1]]})"


def private_jax(module: Module) -> Iterator[tuple[int, str]]:
    """JAX changes its private modules at will; one file is to be looked at when it does."""
    if module.path != "pjrt/jax_compat.py":
        for line, name in (*module.imports(), *module.attributes()):
            if name.startswith(("jax._src", "jaxlib", "jax.core", "jax.extend")):
                yield line, name


def jax_numpy(module: Module) -> Iterator[tuple[int, str]]:
    """jax.numpy promotes and clamps by rules that are not torch's."""
    if module.part == "lowerings":
        for line, name in (*module.imports(), *module.attributes()):
            if name.startswith(("jax.numpy", "jax.random", "jax.scipy", "jax.nn")):
                yield line, name


def torch_free(module: Module) -> Iterator[tuple[int, str]]:
    """Rows and the runtime know arrays only, so that they serve eager, compile and absent chips alike."""
    if module.part in ("pjrt", "lowerings"):
        for line, name in module.imports():
            if name.split(".")[0] == "torch":
                yield line, name


def private_torch(module: Module) -> Iterator[tuple[int, str]]:
    """torch's private modules may change in any release; few files depend on them."""
    if module.path in ("tensor/patches.py", "tensor/device.py") or module.part == "compile":
        return
    for line, name in module.imports():
        words = name.split(".")
        private = words[0] == "torch" and any(word.startswith("_") for word in words[1:])
        if private and not name.startswith(OPEN_IN_TORCH):
            yield line, name


def vendor(module: Module) -> Iterator[tuple[int, str]]:
    """This package stands beside those, on any machine, and never needs them."""
    for line, name in (*module.imports(), *module.attributes()):
        if name.startswith(("torch.cuda", "torch_xla", "libtpu")):
            yield line, name


def integrations_apart(module: Module) -> Iterator[tuple[int, str]]:
    """An integration can be deleted without touching anything else."""
    own = "torch_pjrt." + ".".join(module.path.split("/")[:2])
    for line, name in module.imports():
        if not name.startswith("torch_pjrt.integrations.") or module.part in ("cli", "testing"):
            continue
        if module.part != "integrations" or not name.startswith(own):
            yield line, name


def environment(module: Module) -> Iterator[tuple[int, str]]:
    """One table says which variables exist."""
    if module.path != "config.py":
        for line, name in (*module.imports(), *module.attributes()):
            if name.startswith(("os.environ", "os.getenv", "os.putenv")):
                yield line, name


def printing(module: Module) -> Iterator[tuple[int, str]]:
    """A library logs and warns; its commands print."""
    if module.part != "cli":
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print":
                yield node.lineno, "print"


def names(module: Module) -> Iterator[tuple[int, str]]:
    """A module is named for what it owns."""
    for word in module.path.removesuffix(".py").split("/"):
        if word in BANNED_NAMES:
            yield 1, f"called {word}"


def length(module: Module) -> Iterator[tuple[int, str]]:
    """A family that grows splits into sub-families."""
    lines = len((PACKAGE / module.path).read_text().splitlines())
    if lines > LONGEST_FILE:
        yield lines, f"{lines} lines, more than {LONGEST_FILE}"


def opening(module: Module) -> Iterator[tuple[int, str]]:
    """A module opens by saying what it owns."""
    if not ast.get_docstring(module.tree) and module.tree.body:
        yield 1, "has no docstring"


RULES = {
    "layers": layers,
    "private jax": private_jax,
    "jax.numpy": jax_numpy,
    "torch": torch_free,
    "private torch": private_torch,
    "vendor": vendor,
    "integrations": integrations_apart,
    "environment": environment,
    "print": printing,
    "names": names,
    "length": length,
    "opening": opening,
}


def breaches(rule: str) -> list[Breach]:
    """Where a rule is broken, allowed or not."""
    return [Breach(module.path, line, rule, what) for module in modules() for line, what in RULES[rule](module)]


def allowed(breach: Breach) -> bool:
    """Whether ALLOWED has a line for it."""
    return any(breach.rule == rule and breach.module.startswith(where) for where, rule in ALLOWED)


@pytest.mark.parametrize("rule", RULES)
def test_rule_holds(rule: str) -> None:
    """The rule, with the reason in its function's docstring."""
    broken = [breach for breach in breaches(rule) if not allowed(breach)]
    assert not broken, f"{RULES[rule].__doc__}\n" + "\n".join(map(str, broken))


def test_exceptions_are_needed() -> None:
    """An exception whose cause is gone is deleted."""
    found = {rule: breaches(rule) for rule in {rule for _, rule in ALLOWED}}
    idle = [key for key in ALLOWED if not any(breach.module.startswith(key[0]) for breach in found[key[1]])]
    assert not idle, f"not needed any more: {idle}"


def test_every_part_has_a_row() -> None:
    """A new folder says which row it is in."""
    assert {module.part for module in modules()} <= set(ROWS)
