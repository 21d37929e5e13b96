"""Job files of every chip, by each engine's own schema or parser where that engine is installed."""

from __future__ import annotations

import functools
import json
import shlex

import pytest
import yaml

from torch_pjrt.plan import compare, emit, families, work
from torch_pjrt.plan.assumptions import Assumptions
from torch_pjrt.plan.chips import chips
from torch_pjrt.plan.compare import Plan
from torch_pjrt.plan.workload import PlanError, Workload

RUN = "python train.py --name 'a: b' && echo \"done\""
CASES = [(name, count) for name in chips() for count in (1, 16) if (name, count) != ("l4", 16)]


@functools.cache
def plans(count: int) -> Plan:
    """All chips, so many of each."""
    load = Workload("train", 64, 64)
    counted = work.of(families.subject("tiny", load), load)
    return compare.plan(counted, list(chips().values()), [], Assumptions(), count=count)


@pytest.mark.parametrize(("chip", "count"), CASES)
def test_kubernetes(chip: str, count: int) -> None:
    """By the OpenAPI schema of a Kubernetes release, which refuses keys that it does not know."""
    validate = pytest.importorskip("kubernetes_validate").validate
    documents = list(yaml.safe_load_all(emit.job(plans(count), "k8s", RUN, chip)))
    for document in documents:
        validate(document, "1.31", strict=True)
    job = documents[0]["spec"]
    limits = job["template"]["spec"]["containers"][0]["resources"]["limits"]
    assert job.get("completions", 1) * next(iter(limits.values())) >= count
    wrong = {**documents[0], "spec": {**job, "parallelismm": 1}}
    with pytest.raises(Exception, match="parallelismm"):
        validate(wrong, "1.31", strict=True)


@pytest.mark.parametrize(("chip", "count"), CASES)
def test_skypilot(chip: str, count: int) -> None:
    if not emit.NAMES[chip].sky:
        with pytest.raises(PlanError, match="no name"):
            emit.job(plans(count), "skypilot", RUN, chip)
        return
    task = yaml.safe_load(emit.job(plans(count), "skypilot", RUN, chip))
    name, _, each = task["resources"]["accelerators"].partition(":")
    assert name and int(each) >= 1 and task["num_nodes"] >= 1 and task["run"].strip() == RUN
    if emit.NAMES[chip].resource == "google.com/tpu":
        assert task["num_nodes"] == 1 and each == "1"  # a slice is one accelerator of its own name
    else:
        assert task["num_nodes"] * int(each) >= count
    try:
        from sky.utils import schemas
    except ImportError:
        return  # not installed: the rules above, by hand
    jsonschema = pytest.importorskip("jsonschema")
    jsonschema.validate(task, schemas.get_task_schema())
    jsonschema.validate(task["resources"], schemas.get_resources_schema())


@pytest.mark.parametrize(("chip", "count"), CASES)
def test_ray(chip: str, count: int) -> None:
    request = json.loads(emit.job(plans(count), "ray", RUN, chip))
    assert shlex.split(request["entrypoint"]) == shlex.split(RUN)
    wanted = request.get("entrypoint_resources", {"GPU": request.get("entrypoint_num_gpus")})
    assert all(isinstance(n, (int, float)) and n >= 1 for n in wanted.values())
    assert all(isinstance(v, str) for v in request["metadata"].values())
    try:
        from ray.dashboard.modules.job.common import JobSubmitRequest, validate_request_type
    except ImportError:
        return  # not installed: the rules above, by hand
    validate_request_type(request, JobSubmitRequest)


def test_a_machine_that_nobody_rents() -> None:
    made = plans(1)
    with pytest.raises(PlanError, match="not among the chips"):
        emit.job(made, "k8s", RUN, "cpu")
    with pytest.raises(PlanError, match="needs the command"):
        emit.job(made, "k8s", "  ", "h100")
