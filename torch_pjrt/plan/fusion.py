"""Groups of primitives that a compiler makes one kernel of, the memory each kernel reads and writes, and the peak of memory.

A value reaches memory when it is a result, when a product or a gather reads it, or when more than one kernel does. Chains of
elementwise operations, and what leads into a reduction, cost no traffic of their own; an elementwise tail of a product is
part of the product's kernel; nothing is fused across forward, backward and optimizer. The rules are those that XLA's fusion
follows in outline; the choice is not its own.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace

from torch_pjrt.plan.graph import Graph, Node
from torch_pjrt.plan.primitives import FREE, FUSED, HEAVY, READS_RESULT_ONLY, TRANSPARENT

_STORED = ("parameter", "expert", "state", "buffer")


@dataclass(slots=True)
class Group:
    """One kernel. weight_bytes: of what is stored from step to step (read or overwritten); bytes: all traffic.

    expert_bytes: of weight_bytes, those of experts. inner: it only makes scores inside an attention.
    """

    name: str = ""
    phase: str = "forward"
    matmul: dict[str, float] = field(default_factory=dict)
    vector: float = 0.0
    skippable: float = 0.0
    weight_bytes: float = 0.0
    bytes: float = 0.0
    count: int = 1
    sharded_output: float = 0.0
    expert_bytes: float = 0.0
    inner: bool = False

    @property
    def flops(self) -> float:
        """Operations of the matrix unit."""
        return sum(self.matmul.values())


class Fusion:
    """The groups of a graph: own[i] is the group of node i, named by the node whose result is written."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.producer = graph.producers()
        self.results = frozenset(graph.outputs)
        self.users: dict[int, list[int]] = defaultdict(list)
        for i, node in enumerate(graph.nodes):
            for v in node.ins:
                if v >= 0:
                    self.users[v].append(i)
        self.own = list(range(len(graph.nodes)))
        for i in reversed(range(len(graph.nodes))):
            if graph.nodes[i].kind in (FREE, FUSED):
                self.own[i] = self._home(i)
        self._take_tails()
        self.home = {v: self.own[i] for i, n in enumerate(graph.nodes) for v in n.outs}
        self.needed = self._needed()
        self.last = self._last_uses()

    def phase(self, node: int) -> str:
        """forward, backward or optimizer."""
        step = self.graph.nodes[node].step
        return self.graph.phases[step] if 0 <= step < len(self.graph.phases) else "forward"

    def source(self, v: int) -> tuple[int, int]:
        """The value in memory behind views and casts, and the bytes of it that are read."""
        return self.graph.behind(v, self.producer, TRANSPARENT, self.results)

    def _home(self, at: int) -> int:
        """The one group that computes a fusible node, or its own when its result must be written."""
        node, graph = self.graph.nodes[at], self.graph
        if any(v in self.results for v in node.outs):
            return at
        found: set[int] = set()
        for v in node.outs:
            for user in self.users[v]:
                if node.name not in TRANSPARENT and self._written_for(user, at):
                    return at
                found.add(self.own[user])
        if node.name in TRANSPARENT:
            return min(found) if found else at  # its source is read wherever it is needed
        return found.pop() if len(found) == 1 and not graph.nodes[at].matmul else at

    def _written_for(self, user: int, at: int) -> bool:
        return self.graph.nodes[user].kind == HEAVY or self.phase(self.own[user]) != self.phase(at)

    def _take_tails(self) -> None:
        """Let a product's kernel do the elementwise work on its result, when nothing else reads that result."""
        members: dict[int, list[int]] = defaultdict(list)
        for i, group in enumerate(self.own):
            members[group].append(i)
        taken: set[int] = set()
        for i, node in enumerate(self.graph.nodes):
            if not node.matmul or len(node.outs) != 1 or node.outs[0] in self.results:
                continue
            homes = {self.own[u] for u in self.users[node.outs[0]]}
            if len(homes) != 1:
                continue
            home = homes.pop()
            if home in taken or home == i or self.graph.nodes[home].kind not in (FREE, FUSED):
                continue
            if self.phase(home) != self.phase(i) or not home > i:
                continue
            taken.add(home)
            for m in members[i]:
                self.own[m] = home
            members[home] += members.pop(i)

    def _needed(self) -> set[int]:
        """Values that reach memory: results, and what another group reads."""
        found = set(self.results)
        for i, node in enumerate(self.graph.nodes):
            if node.name in TRANSPARENT:
                continue
            for v in node.ins:
                source = self.source(v)[0] if v >= 0 else -1
                if source in self.home and self.home[source] != self.own[i]:
                    found.add(source)
        for v in self.results:
            source = self.source(v)[0]
            if source != v and source in self.home:
                found.add(source)
        return found

    def groups(self) -> list[Group]:
        """The kernels in order; views, which cost nothing, left out."""
        members: dict[int, list[int]] = defaultdict(list)
        for i, group in enumerate(self.own):
            members[group].append(i)
        made = (self._group(root, members[root]) for root in sorted(members))
        return [g for g in made if g is not None]

    def _group(self, root: int, nodes: list[int]) -> Group | None:
        graph = self.graph
        group = Group(name=graph.nodes[root].name, phase=self.phase(root))
        only_views = all(graph.nodes[i].name in TRANSPARENT for i in nodes)
        if only_views and not any(v in self.results for i in nodes for v in graph.nodes[i].outs):
            return None
        reads: dict[int, int] = {}
        for i in nodes:
            node = graph.nodes[i]
            if node.matmul:
                group.name = node.name
                group.matmul[node.dtype] = group.matmul.get(node.dtype, 0.0) + node.matmul
            group.vector += node.vector
            group.skippable += node.skippable
            group.bytes += node.inner_bytes
            if only_views or node.name not in TRANSPARENT:
                self._read(node, root, reads)
            for v in node.outs:
                if v in self.needed:
                    self._write(node, v, group)
        for v, size in reads.items():
            group.bytes += size
            if graph.roles[v] in _STORED:
                group.weight_bytes += size
                group.expert_bytes += size if graph.roles[v] == "expert" else 0
        group.inner = self._inner(nodes)
        if group.matmul and any(graph.roles[v] in _STORED for v in reads):
            group.sharded_output = sum(graph.nbytes[v] for i in nodes for v in graph.nodes[i].outs if v in self.needed)
        return group

    def _write(self, node: Node, v: int, group: Group) -> None:
        size = self.graph.nbytes[v]
        if node.name == "dynamic_update_slice" or node.name.startswith("scatter"):  # in place
            update = node.ins[-1] if node.name.startswith("scatter") else node.ins[1]
            size = min(size, self.graph.nbytes[update]) if update >= 0 else size
        group.bytes += size
        if v in self.graph.written:
            group.weight_bytes += size
            group.expert_bytes += size if v in self.graph.written_experts else 0

    def _read(self, node: Node, root: int, reads: dict[int, int]) -> None:
        for position, v in enumerate(node.ins):
            if v < 0 or position == 0 and (node.name == "dynamic_update_slice" or node.name.startswith("scatter")):
                continue
            source, size = self.source(v)
            if source < 0 or self.home.get(source) == root:
                continue
            if position == 0 and node.name in READS_RESULT_ONLY:
                size = min(size, sum(self.graph.nbytes[o] for o in node.outs))
            reads[source] = min(self.graph.nbytes[source], reads.get(source, 0) + size)

    def _inner(self, nodes: list[int]) -> bool:
        """Whether all that a kernel writes are scores inside an attention."""
        written = [v for i in nodes for v in self.graph.nodes[i].outs if v in self.needed]
        return bool(written) and all(v in self.graph.inner for v in written)

    def _last_uses(self) -> dict[int, int]:
        """The last kernel that reads each value in memory."""
        last: dict[int, int] = {}
        for i, node in enumerate(self.graph.nodes):
            for v in node.ins:
                source = self.source(v)[0] if v >= 0 else -1
                if source in self.home:
                    last[source] = max(last.get(source, 0), self.own[i])
        return last

    def _gradients(self) -> set[int]:
        """What the backward pass makes and the optimizer reads."""
        return {
            v
            for v in self.needed
            if v in self.home
            and self.phase(self.home[v]) == "backward"
            and self.phase(self.last.get(v, 0)) == "optimizer"
        }

    def saved(self, products_only: bool = False) -> int:
        """Bytes that the forward pass makes and the backward pass reads. products_only: results of products and attention."""
        total = 0
        heavy = {self.own[i] for i, n in enumerate(self.graph.nodes) if n.matmul}
        for v in self.needed:
            home = self.home.get(v)
            if home is None or self.phase(home) != "forward" or self.phase(self.last.get(v, home)) != "backward":
                continue
            if products_only and (home not in heavy or v in self.graph.inner):
                continue
            total += self.graph.nbytes[v]
        return total

    def peak_bytes(self) -> int:
        """Most bytes of intermediate values alive at once, in the order recorded.

        Without inputs and what overwrites them, and without gradients, which are counted apart.
        """
        last, gradients = dict(self.last), self._gradients()
        end = len(self.graph.nodes)
        for v in self.results:
            last[self.source(v)[0]] = last[v] = end
        changes: dict[int, int] = defaultdict(int)
        for v in self.needed:
            if v in self.home and v not in self.graph.written and v not in gradients:
                changes[self.home[v]] += self.graph.nbytes[v]
                changes[max(self.home[v], last.get(v, 0)) + 1] -= self.graph.nbytes[v]
        alive = most = 0
        for at in sorted(changes):
            alive += changes[at]
            most = max(most, alive)
        return most


def merged(found: list[Group]) -> list[Group]:
    """Equal kernels as one with a count."""
    table: dict[tuple[object, ...], Group] = {}
    for g in found:
        sizes = (g.vector, g.skippable, g.weight_bytes, g.bytes, g.sharded_output, g.expert_bytes, g.inner)
        key = (g.name, g.phase, tuple(sorted(g.matmul.items())), *sizes)
        if key in table:
            table[key].count += g.count
        else:
            table[key] = replace(g, matmul=dict(g.matmul))
    return list(table.values())
