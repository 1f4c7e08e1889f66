"""A headless Chromium for the tests, driven over the WebDriver protocol by the standard library alone."""

import base64
import json
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ARGUMENTS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-dev-shm-usage",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--no-first-run",
    "--force-device-scale-factor=1",
    "--font-render-hinting=none",
    "--hide-scrollbars",
    "--lang=en-US",
)
PREFERENCES = {"profile.default_content_setting_values.automatic_downloads": 1}
KEYS = {"Enter": "\ue007", "Escape": "\ue00c", "Tab": "\ue004", "Home": "\ue011"}
KEYS |= {"Left": "\ue012", "Up": "\ue013", "Right": "\ue014", "Down": "\ue015"}
WAIT = 60.0


def missing() -> str:
    """Return what is not installed; empty where Chromium and its driver are."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome") or shutil.which("chromium-browser")
    wanted = {"Chromium": chromium, "chromedriver": shutil.which("chromedriver")}
    return " and ".join(name for name, path in wanted.items() if not path)


class Browser:
    """One window of a headless Chromium."""

    def __init__(self, server: str, downloads: Path) -> None:
        self._server, self._downloads = server, downloads
        options: dict[str, Any] = {"args": list(ARGUMENTS), "prefs": PREFERENCES | {"download.default_directory": str(downloads)}}
        binary = shutil.which("chromium") or shutil.which("google-chrome") or shutil.which("chromium-browser")
        always = {
            "browserName": "chrome",
            "goog:chromeOptions": options | {"binary": binary},
            "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"},
        }
        self._session = ""
        self._session = "/session/" + self._ask("POST", "/session", {"capabilities": {"alwaysMatch": always}})["sessionId"]

    def _ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        data = json.dumps(body or {}).encode() if method == "POST" else None
        request = urllib.request.Request(self._server + self._session + path, data, {"Content-Type": "application/json"}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=WAIT) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            raise RuntimeError(json.load(error)["value"]["message"]) from None

    def close(self) -> None:
        """End the session and its window."""
        self._ask("DELETE", "")

    def blank(self) -> None:
        """Show nothing, under no policy."""
        self._ask("POST", "/url", {"url": "about:blank"})

    def open(self, path: Path, fragment: str = "") -> None:
        """Load a file anew, and forget what was logged."""
        self.blank()
        self.log()
        self.requests()
        self._ask("POST", "/url", {"url": path.as_uri() + (f"#{fragment}" if fragment else "")})

    def run(self, script: str, *arguments: Any) -> Any:
        """Return what a script's ``return`` gives; a promise is waited for."""
        return self._ask("POST", "/execute/sync", {"script": script, "args": list(arguments)})

    def wait(self, condition: str) -> Any:
        """Wait until an expression is true, and return its value.

        Raises:
            TimeoutError: if it stays false.
        """
        end = time.monotonic() + WAIT
        while time.monotonic() < end:
            value = self.run(f"return ({condition})")
            if value:
                return value
            time.sleep(0.02)
        raise TimeoutError(condition)

    def press(self, *keys: str) -> None:
        """Press keys one after the other: names of `KEYS`, or characters."""
        actions = [{"type": kind, "value": KEYS.get(key, key)} for key in keys for kind in ("keyDown", "keyUp")]
        self._ask("POST", "/actions", {"actions": [{"type": "key", "id": "keyboard", "actions": actions}]})

    def click(self, selector: str) -> None:
        """Click the middle of the first element that a CSS selector finds."""
        element = self._ask("POST", "/element", {"using": "css selector", "value": selector})
        moved = {"type": "pointerMove", "origin": element, "x": 0, "y": 0}
        actions = [moved, {"type": "pointerDown", "button": 0}, {"type": "pointerUp", "button": 0}]
        self._ask("POST", "/actions", {"actions": [{"type": "pointer", "id": "mouse", "actions": actions}]})

    @contextmanager
    def frame(self, selector: str) -> Iterator[None]:
        """Let scripts run in a frame of the page."""
        self._ask("POST", "/frame", {"id": self._ask("POST", "/element", {"using": "css selector", "value": selector})})
        try:
            yield
        finally:
            self._ask("POST", "/frame", {"id": None})

    def devtools(self, command: str, **parameters: Any) -> Any:
        """Send a command of the DevTools protocol."""
        return self._ask("POST", "/goog/cdp/execute", {"cmd": command, "params": parameters})

    def look(self, *, width: int = 1280, height: int = 800, dark: bool = False) -> None:
        """Set the window's size and the host's colour scheme."""
        self.devtools("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.devtools("Emulation.setEmulatedMedia", features=[scheme])

    def picture(self) -> bytes:
        """Return what the window shows as PNG."""
        return base64.b64decode(self._ask("GET", "/screenshot"))

    def log(self) -> list[str]:
        """Return what was written to the console since the last call."""
        return [f"{entry['level']} {entry['message']}" for entry in self._ask("POST", "/se/log", {"type": "browser"})]

    def requests(self) -> list[str]:
        """Return the addresses that were asked for since the last call, the page's own file and blobs and data inside of it left out."""
        events = [json.loads(entry["message"])["message"] for entry in self._ask("POST", "/se/log", {"type": "performance"})]
        asked = [event["params"]["request"]["url"] for event in events if event["method"] == "Network.requestWillBeSent"]
        return [url for url in asked if not url.startswith(("file:", "blob:", "data:", "about:"))]


@contextmanager
def browser(downloads: Path) -> Iterator[Browser]:
    """Start chromedriver on a free port, and end it."""
    with subprocess.Popen(["chromedriver", "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as driver:
        try:
            window = Browser(f"http://127.0.0.1:{_port(driver)}", downloads)
            try:
                yield window
            finally:
                window.close()
        finally:
            driver.terminate()


def _port(driver: subprocess.Popen[str]) -> int:
    assert driver.stdout is not None
    for line in driver.stdout:
        if "started successfully on port" in line:
            return int(line.rstrip().rstrip(".").rpartition(" ")[2])
    raise RuntimeError(f"chromedriver ended with {driver.wait()}")
