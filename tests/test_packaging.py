"""What is shipped."""

import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_wheel_is_pure_python_and_complete(tmp_path):
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", tmp_path, ROOT]
    run = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.name == f"pullback-{PROJECT['version']}-py3-none-any.whl"
    shipped = set(zipfile.ZipFile(wheel).namelist())
    sources = {str(path.relative_to(ROOT / "src")) for path in (ROOT / "src").rglob("*.py")}
    assert sources | {"pullback/py.typed"} <= shipped
    assert not [name for name in shipped if name.endswith((".so", ".pyc")) or name.startswith(("tests/", "src/"))]
    assert b"[pytest11]\npullback = _pullback_pytest" in zipfile.ZipFile(wheel).read(f"pullback-{PROJECT['version']}.dist-info/entry_points.txt")


def test_version_is_the_same_everywhere():
    import pullback

    assert pullback.__version__ == PROJECT["version"]


def test_lock_pins_everything_and_names_no_host():
    lines = [line for line in (ROOT / "requirements" / "dev.txt").read_text().splitlines() if not line.startswith("#")]
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.]+", line) for line in lines)
    assert "torch==2.13.0" in lines


def test_lock_satisfies_the_run_time_needs():
    locked = {line.partition("==")[0].lower() for line in (ROOT / "requirements" / "dev.txt").read_text().splitlines()}
    needed = [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["torch"]]
    assert {re.match(r"[A-Za-z0-9._-]+", need)[0].lower() for need in needed} <= locked
