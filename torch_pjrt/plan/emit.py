"""A job file for the chosen chip: SkyPilot's task, a Kubernetes Job, or a request for Ray's job server.

Owns the names that each engine has for chips. What cannot be known here (images, clusters, quotas) is left to the engine's
own defaults; checks follow each engine's documented form.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from torch_pjrt.plan.compare import Plan
from torch_pjrt.plan.estimate import Estimate
from torch_pjrt.plan.workload import PlanError

ENGINES = ("skypilot", "k8s", "ray")


@dataclass(frozen=True, slots=True)
class Names:
    """What engines call a chip. per_node: chips of a machine; extra: of torch-pjrt; cores: SkyPilot counts TPU v5p by cores."""

    sky: str
    resource: str
    per_node: int
    extra: str
    selector: str = ""
    ray: str = ""
    cloud: str = ""


NAMES = {
    "tpu-v5e": Names("tpu-v5litepod-{n}", "google.com/tpu", 8, "tpu", "tpu-v5-lite-podslice", "TPU", "gcp"),
    "tpu-v5p": Names("tpu-v5p-{cores}", "google.com/tpu", 4, "tpu", "tpu-v5p-slice", "TPU", "gcp"),
    "tpu-v6e": Names("tpu-v6e-{n}", "google.com/tpu", 8, "tpu", "tpu-v6e-slice", "TPU", "gcp"),
    "tpu-7x": Names("", "google.com/tpu", 4, "tpu", "tpu7x", "TPU", "gcp"),
    "trn1": Names("Trainium:{each}", "aws.amazon.com/neuron", 16, "", ray="neuron_cores", cloud="aws"),
    "inf2": Names("Inferentia2:{each}", "aws.amazon.com/neuron", 12, "", ray="neuron_cores", cloud="aws"),
    "trn2": Names("Trainium2:{each}", "aws.amazon.com/neuron", 16, "", ray="neuron_cores", cloud="aws"),
    "trn3": Names("", "aws.amazon.com/neuron", 16, "", ray="neuron_cores", cloud="aws"),
    "a100": Names("A100-80GB:{each}", "nvidia.com/gpu", 8, "cuda13"),
    "l4": Names("L4:{each}", "nvidia.com/gpu", 1, "cuda13"),
    "h100": Names("H100:{each}", "nvidia.com/gpu", 8, "cuda13"),
    "h200": Names("H200:{each}", "nvidia.com/gpu", 8, "cuda13"),
    "b200": Names("B200:{each}", "nvidia.com/gpu", 8, "cuda13"),
    "gb200": Names("GB200:{each}", "nvidia.com/gpu", 4, "cuda13"),
    "gb300": Names("GB300:{each}", "nvidia.com/gpu", 4, "cuda13"),
    "mi300x": Names("MI300X:{each}", "amd.com/gpu", 8, "rocm7"),
    "mi325x": Names("MI325X:{each}", "amd.com/gpu", 8, "rocm7"),
    "mi355x": Names("MI355X:{each}", "amd.com/gpu", 8, "rocm7"),
}


def job(made: Plan, engine: str, command: str, chip: str | None = None) -> str:
    """The text of the file. Raises PlanError when there is nothing to run, or the engine has no name for the chip."""
    if not command.strip():
        raise PlanError("--emit needs the command to run, as in --run 'python train.py'")
    wanted = chip or made.chosen
    row = next((r for r in made.rows if r.chip.name == wanted), None)
    if row is None:
        what = f"{wanted!r} is not among the chips compared" if wanted else "no chip fits, so there is no job to write"
        raise PlanError(what)
    if row.chip.name not in NAMES:
        raise PlanError(f"no engine is known to rent {row.chip.title}; name another chip with --for")
    if row.layout is None:
        raise PlanError(f"{row.chip.title} {row.reason}")
    return {"skypilot": _skypilot, "k8s": _kubernetes, "ray": _ray}[engine](row, command, made)


def _split(row: Estimate) -> tuple[int, int, Names]:
    """Machines, and chips on each."""
    names = NAMES[row.chip.name]
    chips = row.layout.chips if row.layout else 1
    each = min(chips, names.per_node)
    return -(-chips // each), each, names


def _install(names: Names) -> str:
    return f"torch-pjrt[{names.extra}]" if names.extra else "torch-pjrt"


def _label(made: Plan) -> str:
    return re.sub(r"[^a-z0-9]+", "-", f"{made.work.name}-{made.work.workload.kind}".lower()).strip("-")[:50] or "job"


def _head(row: Estimate, made: Plan) -> str:
    step = f"{row.step.low:.3g} to {row.step.high:.3g} s a step" if row.step else ""
    layout = row.layout.text if row.layout else ""
    return f"# {made.work.name}, {made.work.workload.kind}: {row.chip.title}, {layout}; {step} by {row.method}\n"


def _skypilot(row: Estimate, command: str, made: Plan) -> str:
    nodes, each, names = _split(row)
    if not names.sky:
        raise PlanError(f"SkyPilot has no name for {row.chip.title} that is known here")
    chips = row.layout.chips if row.layout else 1
    accelerators = names.sky.format(n=chips, cores=max(8, 2 * chips), each=each)
    resources: dict[str, Any] = {"accelerators": accelerators if ":" in accelerators else f"{accelerators}:1"}
    if names.cloud:
        resources = {"cloud": names.cloud, **resources}
    if made.ownership == "spot":
        resources["use_spot"] = True
    task = {
        "name": _label(made),
        "num_nodes": 1 if names.resource == "google.com/tpu" else nodes,
        "resources": resources,
        "workdir": ".",
        "setup": f"pip install '{_install(names)}'\n",
        "run": command.strip() + "\n",
    }
    return _head(row, made) + to_yaml(task)


def _kubernetes(row: Estimate, command: str, made: Plan) -> str:
    nodes, each, names = _split(row)
    name = _label(made)
    container = {
        "name": "main",
        "image": "python:3.12",
        "command": ["/bin/sh", "-c"],
        "args": [f"pip install '{_install(names)}' && {command.strip()}"],
        "resources": {"limits": {names.resource: each}, "requests": {names.resource: each}},
    }
    pod: dict[str, Any] = {"restartPolicy": "Never", "containers": [container]}
    if names.selector:
        pod["nodeSelector"] = {"cloud.google.com/gke-tpu-accelerator": names.selector}
    if nodes > 1:
        pod["subdomain"] = name
    spec: dict[str, Any] = {"backoffLimit": 0, "template": {"metadata": {"labels": {"app": name}}, "spec": pod}}
    if nodes > 1:
        spec = {"completionMode": "Indexed", "completions": nodes, "parallelism": nodes, **spec}
    whole: dict[str, Any] = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec}
    text = _head(row, made) + to_yaml(whole)
    if nodes > 1:
        service = {"clusterIP": "None", "selector": {"app": name}}
        text = (
            text
            + "---\n"
            + to_yaml({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": service})
        )
    return text


def _ray(row: Estimate, command: str, made: Plan) -> str:
    """The body of POST /api/jobs/ (JSON, which has no comments)."""
    nodes, each, names = _split(row)
    request: dict[str, Any] = {
        "entrypoint": command.strip(),
        "runtime_env": {"pip": [_install(names)], "working_dir": "."},
        "metadata": {"plan": _head(row, made)[2:].strip(), "machines": str(nodes)},
    }
    if names.ray:
        cores = 2 * each if names.ray == "neuron_cores" and row.chip.name in ("trn1", "inf2") else each
        request["entrypoint_resources"] = {names.ray: cores}
    else:
        request["entrypoint_num_gpus"] = each
    return json.dumps(request, indent=2) + "\n"


_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9 _./\[\]=-]*[A-Za-z0-9\]]")
_WORDS = {"true", "false", "yes", "no", "on", "off", "null", "none", "y", "n"}


def to_yaml(value: Any, indent: int = 0) -> str:
    """Mappings, lists, text and numbers as YAML."""
    pad = "  " * indent
    out = []
    for key, item in value.items():
        if isinstance(item, dict):
            out.append(f"{pad}{_scalar(key)}:\n{to_yaml(item, indent + 1)}")
        elif isinstance(item, list):
            out.append(f"{pad}{_scalar(key)}:\n" + "".join(_item(i, indent) for i in item))
        elif isinstance(item, str) and item.endswith("\n"):
            lines = "".join(f"{pad}  {line}\n" for line in item.rstrip("\n").split("\n"))
            out.append(f"{pad}{_scalar(key)}: |\n{lines}")
        else:
            out.append(f"{pad}{_scalar(key)}: {_scalar(item)}\n")
    return "".join(out)


def _item(item: Any, indent: int) -> str:
    pad = "  " * indent
    if not isinstance(item, dict):
        return f"{pad}- {_scalar(item)}\n"
    text = to_yaml(item, indent + 1)
    return f"{pad}- {text[len(pad) + 2 :]}"


def _scalar(item: Any) -> str:
    if isinstance(item, bool):
        return "true" if item else "false"
    if isinstance(item, (int, float)):
        return str(item)
    if _PLAIN.fullmatch(item) and item.lower() not in _WORDS:
        return str(item)
    return json.dumps(item)
