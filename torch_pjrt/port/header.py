"""What rewritten code needs at the top of its module: `import torch` and the definition of DEVICE_TYPE.

They go behind the block of imports with which the module opens, so that every later line sees them.
"""

from __future__ import annotations

__all__ = ["add_header"]

from collections.abc import Mapping

import libcst as cst


def add_header(module: cst.Module, needs: Mapping[str, str]) -> cst.Module:
    """The module with what `needs` names; unchanged when it is there."""
    if "torch" not in needs:
        return module
    new = _with_header(module, needs, early=False)
    name = needs.get("device type")
    if name is not None and new.code.index(name) < new.code.index(f"{name} = {needs['torch']}.accelerator"):
        return _with_header(module, needs, early=True)  # it is used above the last import
    return new


def _with_header(module: cst.Module, needs: Mapping[str, str], *, early: bool) -> cst.Module:
    """`early`: at the very top, with an import of torch of its own."""
    body, torch = list(module.body), needs["torch"]
    imports = [index for index, one in enumerate(body) if _imports_torch(one, torch)]
    place = _after_imports(body, first=early)
    if early or not imports:
        top = _after_imports(body, first=True)
        text = "import torch\n" if torch == "torch" else f"import torch as {torch}\n"
        body[top:top] = cst.parse_module(text).body
        place = max(place, top) + 1
    else:
        place = max(place, imports[0] + 1)
    if "device type" in needs:
        body[place:place] = _definition(needs["device type"], torch)
        if place + 1 < len(body) and not _starts_apart(body[place + 1]):
            lines = [cst.EmptyLine(), *body[place + 1].leading_lines]
            body[place + 1] = body[place + 1].with_changes(leading_lines=lines)
    return module.with_changes(body=body)


def _definition(name: str, torch: str) -> list[cst.SimpleStatementLine | cst.BaseCompoundStatement]:
    line = f'{name} = {torch}.accelerator.current_accelerator().type if {torch}.accelerator.is_available() else "cpu"\n'
    return [cst.parse_module(line).body[0].with_changes(leading_lines=[cst.EmptyLine(indent=False)])]


def _starts_apart(statement: cst.BaseStatement) -> bool:
    lines: list[cst.EmptyLine] = list(getattr(statement, "leading_lines", ()))
    return _begins_cell(statement) or (bool(lines) and lines[0].comment is None)


def _imports_torch(statement: cst.BaseStatement, name: str) -> bool:
    """`import torch`, `import torch.x`, or `import torch as name`, at the top level."""
    if not isinstance(statement, cst.SimpleStatementLine):
        return False
    for small in statement.body:
        if isinstance(small, cst.Import):
            for alias in small.names:
                bound = alias.evaluated_alias or alias.evaluated_name.split(".")[0]
                if bound == name:
                    return True
    return False


def _after_imports(body: list, *, first: bool) -> int:
    """Behind the imports that a module opens with; with `first`, before them, behind `from __future__`."""
    place = 0
    for index, statement in enumerate(body):
        if _is_text(statement) or _is_future(statement):
            place = index + 1
        elif _begins_cell(statement):
            place = index + 1 if first else place
        elif first:
            break
        elif _only_imports(statement):
            place = index + 1
        elif not _is_setting(statement):
            break
    return place


def _begins_cell(statement: cst.BaseStatement) -> bool:
    """The line that check/notebooks.py puts before each cell of a notebook."""
    return isinstance(statement, cst.SimpleStatementLine) and any(
        isinstance(one, cst.Expr) and isinstance(one.value, cst.Name) and one.value.value.startswith("__pjrt_cell_")
        for one in statement.body
    )


def _is_text(statement: cst.BaseStatement) -> bool:
    if not isinstance(statement, cst.SimpleStatementLine) or len(statement.body) != 1:
        return False
    only = statement.body[0]
    return isinstance(only, cst.Expr) and isinstance(only.value, cst.SimpleString | cst.ConcatenatedString)


def _is_future(statement: cst.BaseStatement) -> bool:
    if not isinstance(statement, cst.SimpleStatementLine):
        return False
    return any(
        isinstance(one, cst.ImportFrom) and isinstance(one.module, cst.Name) and one.module.value == "__future__"
        for one in statement.body
    )


def _only_imports(statement: cst.BaseStatement) -> bool:
    if isinstance(statement, cst.SimpleStatementLine):
        return all(isinstance(one, cst.Import | cst.ImportFrom) for one in statement.body)
    blocks: list[cst.BaseSuite] = []
    if isinstance(statement, cst.Try):
        blocks = [statement.body]
    elif isinstance(statement, cst.If):
        blocks = [statement.body]
    return bool(blocks) and all(
        isinstance(block, cst.IndentedBlock) and block.body and _only_imports(block.body[0]) for block in blocks
    )


def _is_setting(statement: cst.BaseStatement) -> bool:
    """Lines that stand between imports: `os.environ[...] = ...`, `sys.path.insert(...)`, a notebook's `%magic`."""
    if not isinstance(statement, cst.SimpleStatementLine):
        return False
    text = cst.Module([]).code_for_node(statement.with_changes(leading_lines=[]))
    return text.startswith(("os.environ", "sys.path", "__all__", "warnings.", "matplotlib.use", "pass"))
