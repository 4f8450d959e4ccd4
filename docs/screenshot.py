"""Takes a picture of the asset graph of a running Dagster UI with headless Chromium.

    python docs/screenshot.py --url http://127.0.0.1:3000 --output assets.png

The page counts as shown when every group given with --group is on it; otherwise the exit status is 1. Needs Chromium
(Debian: apt-get install chromium), which is driven through its debugging port. Playwright would add a package whose
browsers have to be downloaded from elsewhere, so it is not used.

The graph shows without Spark and without a database: a UI of the bundled example is enough.

    dagster-webserver -m pgtrickle_assets.definitions -a defs -p 3000
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

from websockets.asyncio.client import ClientConnection, connect

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--remote-debugging-port=0",
)  # fmt: skip
SKIP_GREETING = "[...document.querySelectorAll('button')].find(b => b.innerText === 'Skip')?.click()"


@contextmanager
def browser(width: int, height: int) -> Iterator[str]:
    """Run a browser with an empty profile; yields the web socket address of its debugging port."""
    executable = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    if executable is None:
        sys.exit("No Chromium found. Install one (Debian: apt-get install chromium).")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        command = [executable, *FLAGS, f"--user-data-dir={profile}", f"--window-size={width},{height}", "about:blank"]
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)  # noqa: S603 - found on PATH
        try:
            yield _debugging_address(process)
        finally:
            process.terminate()
            process.wait(timeout=20)


def _debugging_address(process: subprocess.Popen[str]) -> str:
    for line in process.stderr or ():
        if match := re.search(r"DevTools listening on (ws://\S+)", line):
            return match.group(1)
    sys.exit("Chromium ended before it was ready.")


class Page:
    """One tab, driven through the Chrome DevTools protocol."""

    def __init__(self, connection: ClientConnection, session: str = "") -> None:
        self._connection = connection
        self._session = session
        self._ids = count(1)

    async def open_tab(self) -> Page:
        """A new tab."""
        target = await self.call("Target.createTarget", url="about:blank")
        attached = await self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        return Page(self._connection, attached["sessionId"])

    async def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command and wait for its answer; events in between are dropped."""
        message: dict[str, Any] = {"id": next(self._ids), "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        await self._connection.send(json.dumps(message))
        while True:
            answer = json.loads(await self._connection.recv())
            if answer.get("id") == message["id"] and answer.get("sessionId", "") == self._session:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                return answer["result"]

    async def run(self, script: str) -> Any:
        """Value of a JavaScript expression."""
        result = await self.call("Runtime.evaluate", expression=script, returnByValue=True)
        return result["result"].get("value")

    async def press(self, key: str, *, alt: bool = False) -> None:
        """Press and release one letter."""
        code = {"key": key, "code": f"Key{key.upper()}", "windowsVirtualKeyCode": ord(key.upper())}
        for kind in ("rawKeyDown", "keyUp"):
            await self.call("Input.dispatchKeyEvent", type=kind, modifiers=int(alt), **code)

    async def text(self) -> str:
        """Visible text of the page."""
        return str(await self.run("document.body ? document.body.innerText : ''") or "")


async def take(socket: str, url: str, groups: list[str], output: Path, *, seconds: float, expand: bool) -> list[str]:
    """Open the page, wait for the groups, write the picture; returns the groups that never showed."""
    async with connect(socket, max_size=None) as connection:
        page = await Page(connection).open_tab()
        await page.call("Page.navigate", url=url)
        deadline = time.monotonic() + seconds
        missing = groups
        while missing and time.monotonic() < deadline:
            await asyncio.sleep(0.5)
            words = set(re.findall(r"\w+", await page.text()))
            missing = [group for group in groups if group not in words]
        if expand:
            await page.press("e", alt=True)
        # The graph is laid out once more after its labels are there, and a greeting may come up meanwhile.
        await asyncio.sleep(3)
        await page.run(SKIP_GREETING)
        await asyncio.sleep(2)
        picture = await page.call("Page.captureScreenshot", format="png")
        output.write_bytes(base64.b64decode(picture["data"]))
        return missing


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description="Take a picture of the asset graph of a running Dagster UI.")
    parser.add_argument("--url", default="http://127.0.0.1:3000", help="address of the UI")
    parser.add_argument("--path", default="/asset-groups", help="page to open")
    parser.add_argument("--group", action="append", help="asset group that must show (default: raw, silver, gold)")
    parser.add_argument("--output", type=Path, default=Path("assets.png"), help="picture to write")
    parser.add_argument("--size", default="1800x1100", help="width x height of the window")
    parser.add_argument("--seconds", type=float, default=60, help="how long to wait for the groups")
    parser.add_argument("--expand", action="store_true", help="show the assets inside the groups")
    arguments = parser.parse_args()
    width, height = (int(part) for part in arguments.size.split("x"))
    groups = arguments.group or ["raw", "silver", "gold"]
    with browser(width, height) as socket:
        missing = asyncio.run(
            take(
                socket,
                arguments.url.rstrip("/") + arguments.path,
                groups,
                arguments.output,
                seconds=arguments.seconds,
                expand=arguments.expand,
            )
        )
    if missing:
        sys.stderr.write(f"Not on the page within {arguments.seconds:.0f} s: {', '.join(missing)}\n")
        return 1
    sys.stderr.write(f"Wrote {arguments.output}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
