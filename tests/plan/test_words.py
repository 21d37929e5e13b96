"""What the shell completes, and the documented form of --json."""

from __future__ import annotations

import json
import pathlib

import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner

from torch_pjrt.cli import plan_words
from torch_pjrt.cli.main import main


def completed(*words: str, incomplete: str = "") -> list[str]:
    """What the shell is offered after these words."""
    found = ShellComplete(main, {}, "torch-pjrt", "_TORCH_PJRT_COMPLETE").get_completions(["plan", *words], incomplete)
    return [item.value for item in found]


def test_completion() -> None:
    assert completed("--workload", incomplete="pre") == ["prefill"]
    assert completed("--chips", incomplete="tpu-v") == ["tpu-v5e", "tpu-v5p", "tpu-v6e"]
    assert completed("--chips", incomplete="h100,h") == ["h100,h200"]
    assert "all" in completed("--chips") and "all" not in completed("--for")
    assert completed("--from", incomplete="mi") == ["mi300x", "mi325x", "mi355x"]
    assert completed("--model", incomplete="llama3") == ["llama3-8b", "llama3-70b"]
    assert completed("--recompute", incomplete="s") == ["selective"]
    assert {"--migration-cost", "--mesh"} & set(completed(incomplete="--m")) == {"--migration-cost"}


def test_completion_knows_what_there_is() -> None:
    from torch_pjrt.plan import chips, families

    assert tuple(plan_words.MODELS) == families.BUILT_IN
    assert plan_words._names() == sorted(chips.chips())


@pytest.mark.parametrize(
    "words",
    [
        ("--tokens", "1e9", "--deadline", "3d"),
        ("--workload", "decode", "--ownership", "owned", "--compile", "--chips", "trn2,l4,mi300x"),
        ("--from", "h100", "--migration-cost", "15d", "--layout", "data=2,zero=3"),
        ("--chips", "h100", "--emit", "ray", "--run", "python train.py"),
    ],
)
def test_json_is_as_documented(words: tuple[str, ...], tmp_path: pathlib.Path) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    schema = json.loads(CliRunner().invoke(main, ["plan", "--json-schema"]).stdout)
    jsonschema.Draft202012Validator.check_schema(schema)
    kept = ("--calibration", str(tmp_path / "none.json"))
    done = CliRunner().invoke(
        main, ["plan", "--model", "tiny", "--batch", "8", "--sequence", "64", "--json", *kept, *words]
    )
    assert done.exit_code == 0, done.output
    jsonschema.validate(json.loads(done.stdout), schema)
    program = tmp_path / "train.py"
    program.write_text("x.cuda()\n")
    data = json.loads(done.stdout)
    data["chips"][0]["surprise"] = 1
    with pytest.raises(jsonschema.ValidationError, match="surprise"):
        jsonschema.validate(data, schema)
