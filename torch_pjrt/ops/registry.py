"""The lowering table: one row per exact ATen overload, and the decorator that adds one.

Owns what a row is. Does not own how rows are called (program/evaluate.py) or when (dispatch/).
Rows are added by the modules of lowerings/ when load_rows() imports them.
"""

from __future__ import annotations

import enum
import importlib
import inspect
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

Fn = TypeVar("Fn", bound=Callable[..., Any])


class Promote(enum.Enum):
    """How tensors and Scalars are cast before a row's function sees them.

    NONE           as they are; Scalars and floats arrive as 0-d int64/float64/complex128/bool arrays
    DEFAULT        to torch's common dtype, bfloat16/float16 then widened to float32; Scalars likewise
    INT_TO_FLOAT   as DEFAULT, with integers and bools cast to torch's default float dtype first

    Under DEFAULT and INT_TO_FLOAT the result is cast to the dtype that torch's meta kernel says, and tensors are
    broadcast against each other when the row says broadcast=True.
    """

    NONE = "none"
    DEFAULT = "default"
    INT_TO_FLOAT = "int_to_float"


class Checked(NamedTuple):
    """What a row returns when it can meet numbers that it must refuse: the result, and a 0-d bool that is True then."""

    value: Any
    bad: Any


@dataclass(frozen=True, slots=True, eq=False)
class Row:
    """One lowering.

    name       exact overload, "aten::add.Tensor"
    fn         pure function of arrays; parameters named as in the schema
    static     float or Scalar arguments that are part of the program's key (they decide a shape or a formula)
    operands   int arguments that are 0-d int64 operands instead of part of the key
    keep       tensor arguments that a promoting row leaves in their own dtype (conditions, masks, indices)
    random     words (32 bits) drawn per element of the first result, 0 if not random; fn then takes rng=uint32[4]
    dynamic    the first result is padded to a bound and fn returns (results, count)
    updates    tensor arguments whose new values are the last results, in this order; absent ones (None) are left out
    checked    fn may meet numbers that it must refuse and returns Checked(results, bad): True for an index out of its range,
               or the sentence that says what else was wrong
    wants_out  fn takes out=((shape, dtype), ...), the results' shapes and NumPy dtypes as torch says them
    wants_contiguous  fn takes contiguous=, one bool per tensor operand: whether torch sees it row-major
    wants_platform  fn takes platform=, JAX's name of what is compiled for ("cpu", "tpu"; "" for several): to choose between
                    forms of one result
    wants_precision  fn takes precision=, a lax.Precision that follows torch.get_float32_matmul_precision
    """

    name: str
    fn: Callable[..., Any]
    promote: Promote = Promote.NONE
    broadcast: bool = False
    static: frozenset[str] = frozenset()
    operands: frozenset[str] = frozenset()
    keep: frozenset[str] = frozenset()
    random: int = 0
    dynamic: bool = False
    updates: tuple[str, ...] = ()
    checked: bool | str = False
    wants_out: bool = False
    wants_platform: bool = False
    wants_precision: bool = False
    wants_contiguous: bool = False

    @property
    def title(self) -> str:
        """The name as people write it: "add.Tensor", "mm"."""
        return self.name.split("::")[-1].removesuffix(".default")


ROWS: dict[str, Row] = {}


def qualified(name: str) -> str:
    """ "add.Tensor" -> "aten::add.Tensor"; a name without overload gets ".default"."""
    name = name if "::" in name else f"aten::{name}"
    return name if "." in name.split("::", 1)[1] else f"{name}.default"


def add_row(
    name: str,
    fn: Callable[..., Any],
    *,
    promote: Promote = Promote.NONE,
    broadcast: bool | None = None,
    static: tuple[str, ...] = (),
    operands: tuple[str, ...] = (),
    keep: tuple[str, ...] = (),
    random: int = 0,
    dynamic: bool = False,
    updates: tuple[str, ...] = (),
    checked: bool | str = False,
) -> None:
    """Add one row. A second row for the same overload is a mistake and raises."""
    full = qualified(name)
    if full in ROWS:
        raise ValueError(f"two rows for {full}: {ROWS[full].fn.__module__} and {fn.__module__}")
    parameters = inspect.signature(fn).parameters
    ROWS[full] = Row(
        name=full,
        fn=fn,
        promote=promote,
        broadcast=promote is not Promote.NONE if broadcast is None else broadcast,
        static=frozenset(static),
        operands=frozenset(operands),
        keep=frozenset(keep),
        random=random,
        dynamic=dynamic,
        updates=updates,
        checked=checked,
        wants_out="out" in parameters,
        wants_platform="platform" in parameters,
        wants_precision="precision" in parameters,
        wants_contiguous="contiguous" in parameters,
    )


def row(*names: str, **options: Any) -> Callable[[Fn], Fn]:
    """Decorator: the function below lowers these overloads. Options as in add_row."""

    def register(fn: Fn) -> Fn:
        for name in names:
            add_row(name, fn, **options)
        return fn

    return register


def load_rows() -> dict[str, Row]:
    """Import every family in lowerings/ (and so JAX) once; give the table."""
    from torch_pjrt import lowerings

    for module in pkgutil.walk_packages(lowerings.__path__, lowerings.__name__ + "."):
        importlib.import_module(module.name)
    for name in ("meta_kernels", "meta_convolution", "meta_layouts", "meta_fft"):
        importlib.import_module(f"torch_pjrt.ops.{name}")
    for family in ("variants", "transformer", "padded", "quantized", "varlen"):
        importlib.import_module(f"torch_pjrt.ops.decompose_{family}")
    return ROWS
