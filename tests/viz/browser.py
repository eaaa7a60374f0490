"""A headless Chromium that is asked through chromedriver's HTTP interface."""

from __future__ import annotations

import base64
import json
import re
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_ARGUMENTS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--no-first-run",
)


def why_absent() -> str:
    """Why pages cannot be looked at here; empty if they can."""
    missing = [name for name in ("chromium", "chromedriver") if shutil.which(name) is None]
    return f"{' and '.join(missing)} not installed: the page cannot be looked at" if missing else ""


class Browser:
    """One browser window."""

    def __init__(self, session: str) -> None:
        self._session = session

    def open(self, page: Path, *, width: int = 1280, height: int = 900, dark: bool = False) -> None:
        """Load a page from disk, without a network, and wait until its plots are drawn."""
        self.command("Network.enable")
        self.command(
            "Network.emulateNetworkConditions",
            offline=True,
            latency=0,
            downloadThroughput=-1,
            uploadThroughput=-1,
        )
        self.command(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        self.prefer("dark" if dark else "light")
        self.console()
        _request("POST", f"{self._session}/url", {"url": page.resolve().as_uri()})
        self.ask_later(
            "const wait = () => document.querySelectorAll('.plot').length"
            " === document.querySelectorAll('.plot .main-svg .xaxislayer-above').length"
            " ? setTimeout(done, 150) : setTimeout(wait, 30); wait();"
        )

    def prefer(self, scheme: str) -> None:
        """Ask for light or dark pages."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.command("Emulation.setEmulatedMedia", media="", features=features)

    def ask(self, script: str, *arguments: Any) -> Any:
        """What the body of a function returns in the page."""
        return _request("POST", f"{self._session}/execute/sync", {"script": script, "args": list(arguments)})

    def ask_later(self, script: str) -> Any:
        """What the body of a function hands to ``done`` in the page."""
        script = f"const done = arguments[arguments.length - 1]; {script}"
        return _request("POST", f"{self._session}/execute/async", {"script": script, "args": []})

    def hover(self, x: float, y: float) -> None:
        """Move the pointer to a place of the window."""
        self.command("Input.dispatchMouseEvent", type="mouseMoved", x=x - 2, y=y)
        self.command("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def console(self) -> list[str]:
        """Messages of the console since the last call, by level and text."""
        entries = _request("POST", f"{self._session}/se/log", {"type": "browser"})
        return [f"{entry['level']}: {entry['message']}" for entry in entries]

    def screenshot(self) -> bytes:
        """The whole page as PNG."""
        return self._binary("Page.captureScreenshot", captureBeyondViewport=True)

    def print(self) -> bytes:
        """The page as PDF, A4."""
        return self._binary(
            "Page.printToPDF",
            printBackground=True,
            preferCSSPageSize=True,
            paperWidth=8.27,
            paperHeight=11.69,
        )

    def command(self, name: str, **params: Any) -> Any:
        """Send a command of the Chrome DevTools protocol."""
        return _request("POST", f"{self._session}/goog/cdp/execute", {"cmd": name, "params": params})

    def _binary(self, name: str, **params: Any) -> bytes:
        return base64.b64decode(self.command(name, **params)["data"])


@contextmanager
def start_browser() -> Iterator[Browser]:
    """Start chromedriver and one window; both are gone afterwards."""
    with subprocess.Popen(
        ["chromedriver", "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as driver:
        try:
            server = f"http://127.0.0.1:{_port(driver)}"
            options = {"binary": shutil.which("chromium"), "args": list(_ARGUMENTS)}
            wanted = {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
            opened = _request("POST", f"{server}/session", {"capabilities": {"alwaysMatch": wanted}})
            session = f"{server}/session/{opened['sessionId']}"
            yield Browser(session)
            _request("DELETE", session)
        finally:
            driver.terminate()


def _port(driver: subprocess.Popen[str]) -> str:
    assert driver.stdout is not None
    for line in driver.stdout:
        match = re.search(r"started successfully on port (\d+)", line)
        if match is not None:
            return match[1]
    raise RuntimeError("chromedriver ended before it listened")


def _request(method: str, url: str, body: Any = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(url, data=data, headers=headers, method=method)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=60) as answer:
        return json.load(answer)["value"]
