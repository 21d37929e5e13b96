"""The libcst transformer: at each place that plan.py named, writes the device-agnostic form, keeping the text around it.

Arguments, comments and line breaks of a call stay as they are; only its function and the first or last argument change.
"""

from __future__ import annotations

__all__ = ["Rewriter"]

from collections.abc import Sequence
from typing import Any

import libcst as cst
from libcst.metadata import PositionProvider

from .plan import AMP_CLASSES, Edit, Plan, Span
from .replacements import CALLS

_SPACE = cst.SimpleWhitespace(" ")
_NO_SPACE = cst.SimpleWhitespace("")


class Rewriter(cst.CSTTransformer):
    """Applies a plan. `changes` counts edits; `needs` says whether the header must define the device type."""

    METADATA_DEPENDENCIES = (PositionProvider,)

    def __init__(self, plan: Plan):
        super().__init__()
        self.plan = plan
        self.changes = 0
        self.needs: dict[str, str] = {}

    # -- places ------------------------------------------------------------------------------------------------------

    def _span(self, node: cst.CSTNode) -> Span:
        where = self.get_metadata(PositionProvider, node)
        return where.start.line, where.start.column, where.end.line, where.end.column

    def _edit(self, node: cst.CSTNode) -> Edit | None:
        return self.plan.edits.get(self._span(node))

    def _torch(self, dotted: str) -> cst.BaseExpression:
        """`torch.x.y`, by the name that the module has for torch."""
        self.needs["torch"] = self.plan.torch
        return cst.parse_expression(self.plan.torch + dotted.removeprefix("torch"))

    def _device_type(self) -> cst.Name:
        self.needs["device type"] = self.plan.device_type
        self.needs["torch"] = self.plan.torch
        return cst.Name(self.plan.device_type)

    def _accelerator_type(self) -> cst.BaseExpression:
        return self._torch("torch.accelerator.current_accelerator().type")

    # -- texts -------------------------------------------------------------------------------------------------------

    def leave_SimpleString(self, original_node: cst.SimpleString, updated_node: cst.SimpleString) -> cst.BaseExpression:
        edit = self._edit(original_node)
        if edit is None:
            return updated_node
        if edit.kind in ("device", "accelerator"):
            self.changes += 1
            return self._device_type() if edit.kind == "device" else self._accelerator_type()
        if edit.kind.endswith("-index"):
            index = str(original_node.evaluated_value).partition(":")[2]
            return self._indexed(edit, [cst.FormattedStringText(f":{index}")], '"')
        if edit.kind == "nccl":
            self.changes += 1
            default = self._torch("torch.distributed.get_default_backend_for_device")
            return cst.Call(default, [cst.Arg(self._device_type())])
        return updated_node

    def leave_FormattedString(
        self, original_node: cst.FormattedString, updated_node: cst.FormattedString
    ) -> cst.BaseExpression:
        edit = self._edit(original_node)
        first = updated_node.parts[0] if updated_node.parts else None
        if edit is None or not edit.kind.endswith("-index") or not isinstance(first, cst.FormattedStringText):
            return updated_node
        rest = [first.with_changes(value=first.value.removeprefix("cuda")), *updated_node.parts[1:]]
        return self._indexed(edit, rest, updated_node.end)

    def _indexed(self, edit: Edit, rest: Sequence[cst.BaseFormattedStringContent], quote: Any) -> cst.BaseExpression:
        """`f"{DEVICE_TYPE}:..."`."""
        self.changes += 1
        kind = self._device_type() if edit.kind.startswith("device") else self._accelerator_type()
        return cst.FormattedString([cst.FormattedStringExpression(kind), *rest], start="f" + quote, end=quote)

    # -- names and calls ---------------------------------------------------------------------------------------------

    def leave_Attribute(self, original_node: cst.Attribute, updated_node: cst.Attribute) -> cst.BaseExpression:
        return self._name(original_node, updated_node)

    def leave_Name(self, original_node: cst.Name, updated_node: cst.Name) -> cst.BaseExpression:
        return self._name(original_node, updated_node)

    def _name(self, original: cst.Attribute | cst.Name, updated: cst.Attribute | cst.Name) -> cst.BaseExpression:
        edit = self._edit(original)
        if edit is not None and edit.kind == "rename":
            self.changes += 1
            return self._torch(edit.name)
        if edit is not None and edit.kind == "custom":  # a bare decorator
            self.changes += 1
            return cst.Call(self._torch(edit.name), [_keyword("device_type", self._device_type())])
        return updated

    def leave_Arg(self, original_node: cst.Arg, updated_node: cst.Arg) -> cst.Arg:
        edit = self._edit(original_node.value)
        if edit is None or edit.kind != "only-with-cuda":
            return updated_node
        self.changes += 1
        target = cst.ComparisonTarget(cst.Equal(), cst.SimpleString('"cuda"'))
        test = cst.Comparison(self._device_type(), [target])
        return updated_node.with_changes(value=cst.IfExp(test=test, body=updated_node.value, orelse=cst.Name("None")))

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:
        edit = self._edit(original_node)
        if edit is None:
            return updated_node
        new = self._call(edit, updated_node)
        if new is not updated_node:
            self.changes += 1
        return new

    def _call(self, edit: Edit, call: cst.Call) -> cst.BaseExpression:
        if edit.kind == "to":
            return self._to(call)
        if edit.kind == "to-current":
            return self._to_current(call)
        if edit.kind == "first-argument":
            return _insert(call, cst.Arg(self._device_type()))
        if edit.kind == "amp":
            names = AMP_CLASSES["torch.cuda.amp." + edit.name.split(".")[-1]]
            named = _name_arguments(call, names).with_changes(func=self._torch(edit.name))
            return _insert(named, cst.Arg(self._device_type()))
        if edit.kind == "custom":
            return _append(call.with_changes(func=self._torch(edit.name)), _keyword("device_type", self._device_type()))
        if edit.kind == "map-location":
            return _append(call, _keyword("map_location", cst.SimpleString('"cpu"')))
        if edit.kind == "seed":
            return call.with_changes(func=self._torch("torch.manual_seed"))
        if edit.kind == "call":
            return self._replaced(edit, call)
        return call

    def _to(self, call: cst.Call) -> cst.BaseExpression:
        """`.cuda()` to `.to(DEVICE_TYPE)`, `.cuda(i)` to `.to(torch.device(DEVICE_TYPE, i))`."""
        assert isinstance(call.func, cst.Attribute)
        to = call.with_changes(func=call.func.with_changes(attr=cst.Name("to")))
        place = next(
            (i for i, one in enumerate(call.args) if one.keyword is None or one.keyword.value == "device"), None
        )
        if place is None:
            return _insert(to, cst.Arg(self._device_type()))
        given = call.args[place]
        if isinstance(given.value, cst.FormattedString) or _mentions(given.value, self.plan.device_type):
            return to.with_changes(args=[*call.args[:place], given, *call.args[place + 1 :]])
        index = given.value
        if not isinstance(index, cst.Integer) and "rank" not in _code(index) and "gpu" not in _code(index):
            return call  # it may be a device already
        pair = [cst.Arg(self._device_type(), comma=cst.Comma(whitespace_after=_SPACE)), cst.Arg(index)]
        value = cst.Call(self._torch("torch.device"), pair)
        return to.with_changes(args=[*call.args[:place], given.with_changes(value=value), *call.args[place + 1 :]])

    def _to_current(self, call: cst.Call) -> cst.BaseExpression:
        """`.cuda(rank)` to `.to(DEVICE_TYPE)`, where the device of the rank is the current one."""
        assert isinstance(call.func, cst.Attribute)
        place = next(i for i, one in enumerate(call.args) if one.keyword is None or one.keyword.value == "device")
        args = [*call.args[:place], call.args[place].with_changes(value=self._device_type()), *call.args[place + 1 :]]
        return call.with_changes(func=call.func.with_changes(attr=cst.Name("to")), args=args)

    def _replaced(self, edit: Edit, call: cst.Call) -> cst.BaseExpression:
        rule = CALLS[edit.name]
        new = call.with_changes(func=self._torch(rule.name))
        if rule.positional:
            new = _name_arguments(new, rule.positional)
        if rule.absent is None or edit.guarded:
            return new
        test = cst.Call(self._torch("torch.accelerator.is_available"))
        return cst.IfExp(
            test=test,
            body=new.with_changes(lpar=[], rpar=[]),
            orelse=cst.parse_expression(rule.absent),
            lpar=[cst.LeftParen()],
            rpar=[cst.RightParen()],
        )

    # -- statements --------------------------------------------------------------------------------------------------

    def leave_SimpleStatementLine(
        self, original_node: cst.SimpleStatementLine, updated_node: cst.SimpleStatementLine
    ) -> cst.BaseStatement | cst.RemovalSentinel:
        if len(original_node.body) != 1 or len(updated_node.body) != 1:
            return updated_node
        only, new = original_node.body[0], updated_node.body[0]
        if isinstance(only, cst.Assign):
            edit = self._edit(only)
            if edit is not None and edit.kind == "tf32":
                self.changes += 1
                call = cst.Call(
                    self._torch("torch.set_float32_matmul_precision"), [cst.Arg(cst.SimpleString(edit.name))]
                )
                return updated_node.with_changes(body=[cst.Expr(call, semicolon=only.semicolon)])
        if not isinstance(only, cst.Expr) or not isinstance(new, cst.Expr):
            return updated_node
        edit = self._edit(only.value)
        if edit is not None and edit.kind == "drop":
            self.changes += 1
            return cst.RemoveFromParent()
        if edit is not None and edit.kind == "call" and CALLS[edit.name].skip and not edit.guarded:
            inner = updated_node.with_changes(leading_lines=[])
            return cst.If(
                test=cst.Call(self._torch("torch.accelerator.is_available")),
                body=cst.IndentedBlock([inner]),
                leading_lines=updated_node.leading_lines,
            )
        return updated_node

    def leave_ImportFrom(
        self, original_node: cst.ImportFrom, updated_node: cst.ImportFrom
    ) -> cst.ImportFrom | cst.RemovalSentinel:
        dropped = self.plan.dropped.get(self._span(original_node))
        if not dropped or isinstance(updated_node.names, cst.ImportStar):
            return updated_node
        kept = [one for one in updated_node.names if (one.evaluated_alias or one.evaluated_name) not in dropped]
        if not kept:
            return cst.RemoveFromParent()
        if kept[-1] is not updated_node.names[-1]:
            kept[-1] = kept[-1].with_changes(comma=updated_node.names[-1].comma)
        return updated_node.with_changes(names=kept)


# -- arguments -------------------------------------------------------------------------------------------------------


def _code(node: cst.CSTNode) -> str:
    return cst.Module([]).code_for_node(node)


def _code_of(space: cst.BaseParenthesizableWhitespace) -> str:
    return cst.Module([]).code_for_node(space)


def _mentions(node: cst.CSTNode, name: str) -> bool:
    return name in _code(node)


def _keyword(name: str, value: cst.BaseExpression) -> cst.Arg:
    equal = cst.AssignEqual(whitespace_before=_NO_SPACE, whitespace_after=_NO_SPACE)
    return cst.Arg(value, keyword=cst.Name(name), equal=equal)


def _insert(call: cst.Call, arg: cst.Arg) -> cst.Call:
    """The call with one more argument in front."""
    if not call.args:
        return call.with_changes(args=[arg], whitespace_before_args=_NO_SPACE)
    return call.with_changes(args=[arg.with_changes(comma=cst.Comma(whitespace_after=_SPACE)), *call.args])


def _append(call: cst.Call, arg: cst.Arg) -> cst.Call:
    """The call with one more keyword argument at its end; a trailing comma and its line break stay."""
    if not call.args:
        return _insert(call, arg)
    *front, last = call.args
    if isinstance(last.comma, cst.Comma):
        after = last.comma.whitespace_after
        apart = call.whitespace_before_args if "\n" in _code_of(after) else _SPACE
        comma = last.comma.with_changes(whitespace_after=apart)
        return call.with_changes(
            args=[*front, last.with_changes(comma=comma), arg.with_changes(comma=cst.Comma(whitespace_after=after))]
        )
    separated = last.with_changes(comma=cst.Comma(whitespace_after=_SPACE), whitespace_after_arg=_NO_SPACE)
    return call.with_changes(args=[*front, separated, arg.with_changes(whitespace_after_arg=last.whitespace_after_arg)])


def _name_arguments(call: cst.Call, names: Sequence[str]) -> cst.Call:
    """Positional arguments as keywords, for a call whose replacement takes them by name."""
    new = []
    for index, one in enumerate(call.args):
        if one.keyword is None and not one.star and index < len(names):
            named = _keyword(names[index], one.value)
            one = named.with_changes(comma=one.comma, whitespace_after_arg=one.whitespace_after_arg)
        new.append(one)
    return call.with_changes(args=new)
