"""Decides what is rewritten, on the syntax tree of `ast`, by place: transform.py looks places up and does it.

A gate (`torch.cuda.is_available()`) is only opened to other devices when everything behind it was rewritten: else the
code behind it would run where it cannot. A finding that the user hides with a comment is left alone.
"""

from __future__ import annotations

__all__ = ["AMP_CLASSES", "Edit", "Plan", "Span"]

import ast
import dataclasses
from collections.abc import Iterator

from torch_pjrt.check import RULES, Finding, Severity, Source
from torch_pjrt.check.detect_device import device_rule, device_text
from torch_pjrt.check.guards import CUDA_TESTS
from torch_pjrt.check.ignores import Ignores
from torch_pjrt.check.source import Hit, call_name, constant, hits, keyword
from torch_pjrt.check.vendor_packages import IMPORTS

from .replacements import CALLS, NAMES

Span = tuple[int, int, int, int]
_GATES = {name for name in CUDA_TESTS if name.endswith("is_available") and name in NAMES}
AMP_CLASSES = {
    "torch.cuda.amp.autocast": ("enabled", "dtype", "cache_enabled"),
    "torch.cuda.amp.GradScaler": ("init_scale", "growth_factor", "backoff_factor", "growth_interval", "enabled"),
}
# Calls that mix with torch.Stream badly: where one stays, streams and events of torch.cuda stay.
_STREAM_USERS = ("torch.cuda.stream", "torch.cuda.set_stream", "torch.cuda.ExternalStream", "torch.cuda.graph",
                 "torch.cuda.CUDAGraph", "torch.cuda.default_stream", "torch.cuda.make_graphed_callables")  # fmt: skip


@dataclasses.dataclass(frozen=True, slots=True)
class Edit:
    """What to do at a place. `guarded`: the code only runs with an accelerator."""

    kind: str
    name: str = ""
    guarded: bool = False


class Plan:
    """The edits of one text, by span, and what they need."""

    def __init__(self, source: Source, found: list[Finding]):
        self.source = source
        self.edits: dict[Span, Edit] = {}
        self.torch = self._torch()
        self.dropped: dict[Span, set[str]] = {}
        words = {node.id for node in source.names.nodes if isinstance(node, ast.Name)}
        self.device_type = "DEVICE_TYPE" if "DEVICE_TYPE" not in words else "ACCELERATOR_TYPE"
        if not self._imports_torch():
            return
        shown = {(one.rule.id, one.line, one.column) for one in Ignores(source.text, source.path).apply(found)}
        self.hits = [hit for hit in hits(source) if self._key(hit) in shown]
        here = [hit for hit in self.hits if not source.guards.named_cuda(hit.node)]  # what is for CUDA by name stays
        self._streams = not any(self._uses(name) for name in _STREAM_USERS)
        for hit in here:
            self._decide(hit)
        for hit in here:
            if hit.rule == "PJ105":
                self._open(hit)
        self._only_names()
        self._imports()

    def _key(self, hit: Hit) -> tuple[str, int, int]:
        line, column, _, _ = self.source.span(hit.node)
        return hit.rule, line, column + 1

    def _uses(self, name: str) -> bool:
        nodes = (node for node in self.source.names.nodes if isinstance(node, ast.Attribute | ast.Name))
        return any(self.source.name(node) == name for node in nodes)

    def _torch(self) -> str:
        """How the module calls torch, or `torch`, which header.py then imports."""
        for node in self.source.tree.body:
            if isinstance(node, ast.Import):
                for alias in node.names:
                    if alias.name == "torch" and alias.asname:
                        return alias.asname
        return "torch"

    def _imports_torch(self) -> bool:
        """Whether importing the module imports torch already."""
        for node in self.source.names.nodes:
            if isinstance(node, ast.Import) and any(one.name.split(".")[0] == "torch" for one in node.names):
                names = True
            elif isinstance(node, ast.ImportFrom) and not node.level:
                names = (node.module or "").split(".")[0] == "torch"
            else:
                continue
            if names and self.source.parent(node) is self.source.tree:
                return True
        return False

    def _add(self, node: ast.AST, kind: str, name: str = "", guarded: bool = False) -> None:
        self.edits.setdefault(self.source.span(node), Edit(kind, name, guarded))

    def _decide(self, hit: Hit) -> None:
        node, rule = hit.node, hit.rule
        if rule in ("PJ102", "PJ103", "PJ201", "PJ202", "PJ204", "PJ505") and device_text(node):
            self._device(node, "device")
        elif rule == "PJ101" and isinstance(node, ast.Call):
            self._add(node, "to-current" if self._is_current(node) else "to")
        elif rule == "PJ203":
            self._add(node, "first-argument")
        elif rule == "PJ501" and constant(node) == "nccl":
            self._add(node, "nccl")
        elif rule == "PJ502":
            self._only_with_cuda(node)
        elif rule == "PJ701" and isinstance(node, ast.Call):
            if self._only_loads_state(node):
                self._add(node, "map-location")
        elif rule == "PJ304" and self.source.name(node) == "torch.backends.cuda.matmul.allow_tf32":
            statement = self.source.parent(node)
            plain = isinstance(statement, ast.Assign) and len(statement.targets) == 1
            if isinstance(statement, ast.Assign) and plain and isinstance(constant(statement.value), bool):
                self._add(statement, "tf32", '"high"' if constant(statement.value) else '"highest"')
        elif rule == "PJ306":
            self._seed(node)
        elif isinstance(node, ast.Attribute | ast.Name):
            self._call(node)

    def _is_current(self, call: ast.Call) -> bool:
        """Whether `.cuda(rank)` names the device that `torch.cuda.set_device(rank)` of the same text made current."""
        index = call.args[0] if call.args else keyword(call, "device")
        if index is None or isinstance(index, ast.Constant):
            return False
        calls = (one for one in self.source.names.nodes if isinstance(one, ast.Call))
        current = [one for one in calls if self.source.name(one) == "torch.cuda.set_device" and one.args]
        return bool(current) and all(ast.dump(one.args[0]) == ast.dump(index) for one in current)

    def _device(self, node: ast.AST, kind: str) -> None:
        text = device_text(node)
        if text == "cuda":
            self._add(node, kind)
        elif isinstance(node, ast.Constant | ast.JoinedStr):
            self._add(node, kind + "-index")

    def _only_with_cuda(self, ids: ast.AST) -> None:
        """`device_ids` and `output_device`, which other devices refuse: kept for CUDA, None elsewhere."""
        above = self.source.parent(ids)
        call = self.source.parent(above) if isinstance(above, ast.keyword) else above
        if isinstance(call, ast.Call):
            values = [ids, keyword(call, "output_device")]
            for one in values:
                if one is not None and constant(one) is None and self.source.code(one) != "None":
                    self._add(one, "only-with-cuda")

    def _call(self, node: ast.Attribute | ast.Name) -> None:
        """A name of torch.cuda that is called, with the arguments that its replacement takes."""
        name, call = self.source.name(node) or "", self.source.parent(node)
        called = isinstance(call, ast.Call) and call.func is node
        if name.startswith("torch.cuda.amp.custom_"):
            self._add(
                call if called and isinstance(call, ast.Call) else node, "custom", "torch.amp." + name.split(".")[-1]
            )
            return
        if not called or not isinstance(call, ast.Call):
            return
        if any(isinstance(one, ast.Starred) for one in call.args):
            return
        guarded = self.source.guards.cuda_only(call)
        if name in AMP_CLASSES:
            self._add(call, "amp", "torch.amp." + name.split(".")[-1])
        elif name in CALLS and (self._streams or not CALLS[name].name.startswith(("torch.Stream", "torch.Event"))):
            if not (name == "torch.cuda.Stream" and len(call.args) > 1):
                self._add(call, "call", name, guarded)

    def _seed(self, node: ast.AST) -> None:
        """torch.cuda.manual_seed: redundant after torch.manual_seed of the same value, else the same call."""
        call = self.source.parent(node)
        if not isinstance(call, ast.Call) or not call_name(call).startswith("manual_seed") or len(call.args) != 1:
            return
        calls = (one for one in self.source.names.nodes if isinstance(one, ast.Call))
        seeds = [one for one in calls if self.source.name(one) == "torch.manual_seed"]
        same = [one for one in seeds if one.args and ast.dump(one.args[0]) == ast.dump(call.args[0])]
        statement, function = self.source.parent(call), self.source.function(call)
        if not isinstance(statement, ast.Expr):
            return
        before = [one for one in same if one.lineno < call.lineno and self.source.function(one) is function]
        if before and any(self._straight(one, statement) for one in before):
            self._add(call, "drop")
        elif not seeds:
            self._add(call, "seed")

    def _straight(self, earlier: ast.Call, later: ast.stmt) -> bool:
        """Whether `earlier` is a statement of the block of `later` or of one around it."""
        blocks = [self.source.parent(later), *self.source.ancestors(later)]
        return self.source.parent(self.source.parent(earlier) or earlier) in blocks

    def _only_loads_state(self, call: ast.Call) -> bool:
        """Whether what is loaded only goes to `load_state_dict`, which copies to where the parameters are."""
        at: ast.AST | None = call
        while isinstance(self.source.parent(at) if at else None, ast.Subscript):
            at = self.source.parent(at)  # type: ignore[arg-type]
        above = self.source.parent(at) if at is not None else None
        if isinstance(above, ast.Call):
            return call_name(above) == "load_state_dict" and at in above.args
        if isinstance(above, ast.Assign) and len(above.targets) == 1 and isinstance(above.targets[0], ast.Name):
            name, scope = above.targets[0].id, self.source.names.scope(above)
            uses = [one for one in self.source.names.nodes if isinstance(one, ast.Name) and one.id == name
                    and isinstance(one.ctx, ast.Load) and self.source.names.scope(one) is scope]  # fmt: skip
            return bool(uses) and all(self._goes_to_load(one) for one in uses)
        return False

    def _goes_to_load(self, node: ast.AST) -> bool:
        above = self.source.parent(node)
        if isinstance(above, ast.Subscript) and above.value is node:
            return self._goes_to_load(above)
        return isinstance(above, ast.Call) and call_name(above) == "load_state_dict" and node in above.args

    # -- gates -------------------------------------------------------------------------------------------------------

    def _open(self, hit: Hit) -> None:
        """Rewrite a gate and the devices it chooses, when nothing behind it stays with CUDA."""
        for gate in self._gates(hit.node):
            region = self.source.guards.region(gate)
            above = self.source.parent(region)
            behind = self._behind(above, region)
            if not self._free(behind, region):
                continue
            self._add(gate.func, "rename", NAMES["torch.cuda.is_available"])
            self.source.through_gates = True
            for one in (self.source.tree,) if behind is None else behind:
                for node in ast.walk(one):
                    if (
                        isinstance(node, ast.Constant | ast.JoinedStr)
                        and device_text(node)
                        and device_rule(self.source, node)
                    ):
                        self._device(node, "accelerator")
            self.source.through_gates = False

    def _gates(self, node: ast.AST) -> Iterator[ast.Call]:
        tests = node.test if isinstance(node, ast.IfExp) else node
        for one in ast.walk(tests):
            if isinstance(one, ast.Call) and self.source.name(one) in _GATES:
                yield one

    def _behind(self, above: ast.AST | None, region: ast.AST) -> list[ast.AST] | None:
        """What runs when the gate is open; None when that cannot be seen."""
        if isinstance(above, ast.If) and self.source.guards.test(region) > 0:
            return list(above.body)
        if isinstance(above, ast.If) and self.source.guards.test(region) < 0 and above.orelse:
            return list(above.orelse)
        if isinstance(above, ast.IfExp) and above.test is region:
            return [above.body if self.source.guards.test(region) > 0 else above.orelse]
        return [] if isinstance(above, ast.keyword) and above.arg in ("pin_memory", "enabled") else None

    def _free(self, behind: list[ast.AST] | None, region: ast.AST) -> bool:
        if behind is None:
            return not any(self._tied(hit) for hit in self.hits)
        nodes = {node for one in (*behind, region) for node in ast.walk(one)}
        vendors = any(
            isinstance(one, ast.Import | ast.ImportFrom)
            and any(alias.name.split(".")[0] in IMPORTS for alias in one.names)
            for one in nodes
        )
        return not vendors and not any(self._tied(hit) for hit in self.hits if hit.node in nodes)

    def _tied(self, hit: Hit) -> bool:
        """Whether a finding stays and would break."""
        if RULES[hit.rule].severity is not Severity.BREAKS or hit.rule in ("PJ602", "PJ603", "PJ701"):
            return False
        if self.source.guards.named_cuda(hit.node):
            return False
        return not self._done(hit)

    def _done(self, hit: Hit) -> bool:
        """Whether a finding is rewritten, itself or with the call that it is the function of."""
        parent = self.source.parent(hit.node)
        spans = [self.source.span(hit.node)]
        if isinstance(parent, ast.Call) and parent.func is hit.node:
            spans.append(self.source.span(parent))
        if isinstance(parent, ast.Assign):
            spans.append(self.source.span(parent))
        return any(span in self.edits for span in spans)

    def _only_names(self) -> None:
        """Gates that guard only calls of torch.cuda are no findings; they are opened when all of those are rewritten."""
        for node in self.source.names.nodes:
            if not isinstance(node, ast.Call) or self.source.name(node) not in _GATES:
                continue
            region = self.source.guards.region(node)
            above = self.source.parent(region)
            if self.source.span(node.func) in self.edits or self.source.guards.test(region) <= 0:
                continue
            if isinstance(above, ast.IfExp) or (isinstance(above, ast.If) and not above.orelse):
                behind = above.body if isinstance(above.body, list) else [above.body]
                inside = {one for part in (*behind, region) for one in ast.walk(part)}
                mine = [hit for hit in self.hits if hit.node in inside]
                if any(self._done(hit) for hit in mine) and not any(self._tied(hit) for hit in mine):
                    self._add(node.func, "rename", NAMES["torch.cuda.is_available"])

    # -- imports -----------------------------------------------------------------------------------------------------

    def _imports(self) -> None:
        """Names imported from torch.cuda whose every use is rewritten are imported no more."""
        names = [
            node for node in self.source.names.nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
        ]
        for node in self.source.names.nodes:
            if not isinstance(node, ast.ImportFrom) or not (node.module or "").startswith("torch.cuda"):
                continue
            for alias in node.names:
                bound = alias.asname or alias.name
                uses = [one for one in names if one.id == bound]
                if uses and all(self._rewritten(one) for one in uses):
                    self.dropped.setdefault(self.source.span(node), set()).add(bound)

    def _rewritten(self, use: ast.Name) -> bool:
        parent = self.source.parent(use)
        edits = [self.edits.get(self.source.span(use))]
        if isinstance(parent, ast.Call) and parent.func is use:
            edits.append(self.edits.get(self.source.span(parent)))
        return any(one is not None and one.kind in ("amp", "custom", "call", "rename", "seed", "drop") for one in edits)
