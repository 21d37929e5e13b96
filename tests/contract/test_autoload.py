"""What `import torch` with the package installed may and may not do. Each case is a process of its own."""

import subprocess
import sys
import textwrap

import pytest

PRELUDE = "import sys, warnings\nimport torch\nfrom torch_pjrt import _autoload\n"


def _run(code, **env):
    import os

    settings = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0", **env}
    done = subprocess.run([sys.executable, "-c", PRELUDE + code], capture_output=True, text=True, env=settings)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def test_imports_no_jax_and_makes_no_client():
    out = _run(
        "_autoload.autoload(); _autoload.autoload()\n"
        "torch.manual_seed(1); torch.pjrt.is_available(), torch.pjrt.device_count(), torch.pjrt.memory_allocated()\n"
        "torch.pjrt.synchronize(); torch.accelerator.empty_cache()\n"
        "torch.Generator(device='pjrt'); torch.pjrt.Stream()\n"
        "torch.accelerator.memory_stats(); torch.nn.Linear(2, 2); torch.autocast('pjrt')\n"
        "print('jax' in sys.modules, _autoload.registered())"
    )
    assert out.split() == ["False", "pjrt"]


def test_name_can_be_changed():
    out = _run(
        "_autoload.autoload()\n"
        "x = torch.ones(2, device='tpu') + 1\n"
        "g = torch.Generator(device='tpu')\n"
        "with torch.autocast('tpu'): y = torch.ones(2, 2, device='tpu') @ torch.ones(2, 2, device='tpu')\n"
        "print(x.tolist(), x.device, x.is_tpu, torch.tpu.device_count(), g.device, y.dtype)",
        TORCH_PJRT_DEVICE_NAME="tpu",
    )
    assert out.split() == ["[2.0,", "2.0]", "tpu:0", "True", "1", "tpu:0", "torch.bfloat16"]


@pytest.mark.parametrize(
    "taken",
    [
        "torch.utils.rename_privateuse1_backend('other')",
        "torch.utils.backend_registration._setup_privateuseone_for_python_backend()",
        "import types; from importlib.machinery import ModuleSpec\n"
        "npu = sys.modules['torch_npu'] = types.ModuleType('torch_npu')\n"
        "npu.__spec__ = ModuleSpec('torch_npu', None)",
    ],
)
def test_a_taken_slot_is_said_once_and_left_alone(taken):
    out = _run(
        taken + "\nwith warnings.catch_warnings(record=True) as said:\n"
        "    warnings.simplefilter('always')\n"
        "    _autoload.autoload()\n"
        "print(len(said), said[0].category.__name__, _autoload.registered(), hasattr(torch, 'pjrt'))"
    )
    assert out.split() == ["1", "SlotTakenWarning", "None", "False"]


def test_never_raises():
    out = _run(
        "import torch_pjrt.tensor.device as d\n"
        "def broken(name): raise ValueError('broken')\n"
        "d.register = broken\n"
        "with warnings.catch_warnings(record=True) as said:\n"
        "    warnings.simplefilter('always')\n"
        "    _autoload.autoload()\n"
        "print(len(said), 'broken' in str(said[0].message))"
    )
    assert out.split() == ["1", "True"]


def test_other_devices_work_as_before():
    out = _run(
        "_autoload.autoload()\n"
        "assert torch.Generator().device.type == 'cpu' and type(torch.Generator()) is torch._C.Generator\n"
        "assert torch.UntypedStorage(4).device.type == 'cpu'\n"
        "print(torch.randn(3).sum().shape, 'jax' in sys.modules)"
    )
    assert "False" in out


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("torch_pjrt.ops.registry", "load_rows"),
        ("torch_pjrt.dispatch.foreach", "register"),
    ],
)
def test_an_interrupt_while_the_device_loads_comes_after_it(module, name):
    """Ctrl-C in the first operation: raised there, and the device works afterwards."""
    code = f"""
        import importlib, os, signal
        importlib.import_module("jax")
        import torch_pjrt.tensor.runtime as runtime
        loader = runtime._loader

        def load():
            import torch_pjrt.dispatch.install, torch_pjrt.dispatch.table
            for module in list(sys.modules.values()):  # wherever the function was imported to
                original = getattr(module, "{name}", None)
                if getattr(original, "__module__", None) == "{module}" and module.__name__.startswith("torch_pjrt"):
                    def interrupted(*args, original=original):
                        os.kill(os.getpid(), signal.SIGINT)
                        seen.append(1)
                        return original(*args)
                    setattr(module, "{name}", interrupted)
            return loader()

        seen = []
        runtime.set_loader(load)
        try:
            torch.ones(2, device="pjrt")
        except KeyboardInterrupt:
            seen.append(2)
        assert seen == [1, 2], seen
        assert (torch.ones(2, device="pjrt") + 1).tolist() == [2, 2]
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    """
    _run("_autoload.autoload()\n" + textwrap.dedent(code))
