"""Writes the pages of docs/ that come from tables: settings.md, findings/index.md. `./dev docs` runs it; a test finds drift."""

from __future__ import annotations

__all__ = ["settings_page", "write"]

import pathlib

from torch_pjrt import config
from torch_pjrt.check.page import examples_of, findings_page
from torch_pjrt.cli.ops_page import ops_page

_HEAD = """# Settings

Written by `./dev docs` from the table in `torch_pjrt/config.py`; do not edit.

Every setting is an environment variable, read when it is first needed, and an attribute of `torch_pjrt.settings`:

```python
from torch_pjrt import settings

settings.cpu_fallback = "error"
with settings.override(eager_mode="debug"):
    ...
```

A value that a setting cannot take raises `BadSettingError`. A `TORCH_PJRT_*` variable that no setting has is reported
once as `UnknownSettingWarning`, with the nearest name. *In the key* says whether a change makes programs compile anew.

| variable | attribute | values | default | in the key | what it does |
|---|---|---|---|---|---|
"""


def settings_page() -> str:
    """The text of docs/settings.md."""
    return _HEAD + "".join(f"{_row(row)}\n" for row in config.table())


def _row(row: config.Setting) -> str:
    values = row.type_name.replace("|", "\\|") + ("" if row.least is None else f", at least {row.least}")
    default = {True: "1", False: "0"}[row.default] if isinstance(row.default, bool) else row.default
    shown = f"`{default}`" if default != "" else "empty"
    cells = (f"`{row.env}`", f"`{row.name}`", values, shown, "yes" if row.in_cache_key else "no", row.help)
    return f"| {' | '.join(cells)} |"


def write(folder: pathlib.Path) -> list[pathlib.Path]:
    """Write all generated pages. Gives their paths."""
    ops = (folder / "ops.md").read_text(encoding="utf-8")
    examples = examples_of(sorted((folder.parent / "tests" / "check" / "corpus").iterdir()))
    pages = {"settings.md": settings_page(), "findings/index.md": findings_page(examples), "ops.md": ops_page(ops)}
    for name, text in pages.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    return [folder / name for name in pages]


if __name__ == "__main__":
    for path in write(pathlib.Path(__file__).resolve().parents[2] / "docs"):
        print(f"wrote {path.name}")
