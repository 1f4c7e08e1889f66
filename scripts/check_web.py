"""Build the report page from its sources in a fresh folder, and compare it bit for bit with the one that is committed.

    python scripts/check_web.py

Exit status: 0 where they are equal, or where Node, npm or the npm registry are not to be had (it says so); 1 where they differ or the build fails.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BUILT = ROOT / "src" / "pullback" / "report" / "_web"
NODE = (20, 19)
NO_NETWORK = ("ENOTFOUND", "EAI_AGAIN", "ECONNREFUSED", "ECONNRESET", "ETIMEDOUT", "ENETUNREACH", "ENOTCACHED", "E403", "E404", "ETARGET")


def missing() -> str:
    """Return why nothing can be built here; empty where it can."""
    if not shutil.which("node") or not shutil.which("npm"):
        return "Node and npm are not installed"
    version = subprocess.run(["node", "--version"], capture_output=True, text=True, check=True).stdout.strip()
    parts = tuple(int(part) for part in version.removeprefix("v").split(".")[:2])
    return "" if parts >= NODE else f"Node {version} is older than {NODE[0]}.{NODE[1]}"


def build(folder: Path) -> str:
    """Build into ``folder/out``; return why it could not be, or an empty text.

    Raises:
        SystemExit: where the build fails.
    """
    web = folder / "web"
    shutil.copytree(ROOT / "web", web, ignore=shutil.ignore_patterns("node_modules"))
    installed = subprocess.run(["npm", "ci"], cwd=web, capture_output=True, text=True)
    if installed.returncode:
        if any(sign in installed.stderr for sign in NO_NETWORK):
            return "the npm registry cannot be reached"
        sys.exit(f"npm ci failed:\n{installed.stderr}")
    built = subprocess.run(["npm", "run", "build"], cwd=web, capture_output=True, text=True, env={**os.environ, "PAGE_OUT": str(folder / "out")})
    if built.returncode:
        sys.exit(f"npm run build failed:\n{built.stdout}{built.stderr}")
    return ""


def main() -> None:
    why = missing()
    with tempfile.TemporaryDirectory() as name:
        why = why or build(Path(name))
        if why:
            print(f"skipped: {why}; the page was not built anew")
            return
        fresh = {path.name: path.read_bytes() for path in (Path(name) / "out").iterdir()}
    committed = {path.name: path.read_bytes() for path in BUILT.iterdir()}
    differing = sorted(name for name in fresh.keys() | committed.keys() if fresh.get(name) != committed.get(name))
    if differing:
        sys.exit(f"{', '.join(differing)} in {BUILT.relative_to(ROOT)} differ from what the sources build: run `make web` and commit")
    print(f"{', '.join(sorted(fresh))}: as the sources build them")


if __name__ == "__main__":
    main()
