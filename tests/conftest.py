"""Which tests wait for CI: files whose tests start many processes, compile or open browsers."""

from pathlib import Path

import pytest

HERE = Path(__file__).parent
EXTENDED = (
    "authoring/test_op_distributed.py",
    "battery/test_cheats.py",
    "battery/test_workers.py",
    "browser",
    "cli/test_record.py",
    "cli/test_sharing.py",
    "cli/test_write_tests.py",
    "examples/test_training.py",
    "ops/test_classic_kernels.py",
    "ops/test_collectives.py",
    "ops/test_fixed_point.py",
    "ops/test_fused_c_kernels.py",
    "ops/test_fused_kernels.py",
    "ops/test_kernels.py",
    "ops/test_root.py",
    "ops/test_solve.py",
    "ops/test_streams.py",
    "test_pytest_plugin.py",
)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    chosen = [HERE / name for name in EXTENDED]
    for item in items:
        if any(item.path == path or path in item.path.parents for path in chosen):
            item.add_marker("extended")
