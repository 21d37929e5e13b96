"""What torch.UntypedStorage must do on the device: be made by size, change size, travel between processes.

patches.py puts these in place. The payload itself is storage.py's matter; everything here goes through ordinary
tensor ops.
"""

from __future__ import annotations

from typing import Any

import torch

from torch_pjrt.tensor import runtime


def make(*args: Any) -> torch.UntypedStorage:
    """torch.UntypedStorage(n, device="pjrt") or (sequence of bytes, device="pjrt")."""
    if args and not isinstance(args[0], int):
        values = torch.tensor(list(args[0]), dtype=torch.int64).to(torch.uint8)
        return values.to(runtime.device()).untyped_storage()
    size = args[0] if args else 0
    return torch.empty(size, dtype=torch.uint8, device=runtime.device()).untyped_storage()


def resize(storage: torch.UntypedStorage, size: int) -> torch.UntypedStorage:
    """Change the number of bytes in place, keeping those that fit; every tensor on the storage sees it.

    torch sizes our storages through a C++ hook that Python cannot give. Swapping with an empty storage exchanges sizes.
    """
    if size < 0:
        raise RuntimeError(f"a storage cannot have {size} bytes")
    kept = min(size, storage.nbytes())
    if size == storage.nbytes():
        return storage
    fresh = as_bytes(make(size))
    if kept:
        fresh[:kept].copy_(as_bytes(storage)[:kept])
    target = fresh.untyped_storage()
    storage._swap_data_ptr_(make(0))  # type: ignore[attr-defined]
    storage._swap_data_ptr_(target)  # type: ignore[attr-defined]
    storage._pjrt = target._pjrt  # type: ignore[attr-defined]
    return storage


def write_file(storage: torch.UntypedStorage, *args: Any) -> None:
    """Write the bytes to a file; torch's own way reads the storage's address."""
    storage.cpu()._write_file(*args)  # type: ignore[attr-defined]


def set_from_file(storage: torch.UntypedStorage, *args: Any) -> torch.UntypedStorage:
    """Take the bytes from a file; torch's own way writes at the storage's address."""
    host = torch.UntypedStorage(storage.nbytes())
    host._set_from_file(*args)
    return storage.copy_(host)


def as_bytes(storage: torch.UntypedStorage) -> torch.Tensor:
    """A uint8 tensor over a whole storage."""
    return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)  # type: ignore[call-overload]


def reduce(storage: torch.UntypedStorage) -> tuple[Any, ...]:
    """How a storage of the device is sent to another process: its bytes, in shared CPU memory."""
    return rebuild, (storage.cpu(),)


def rebuild(host: torch.UntypedStorage) -> torch.UntypedStorage:
    """The receiving side of `reduce`: onto this process's device."""
    return make(host.nbytes()).copy_(host)
