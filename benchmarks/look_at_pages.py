"""Look at built pages in headless Chromium: size, first paint, overflow, and axe-core's findings.

    mkdocs build -d SITE && (cd /tmp && npm install axe-core)
    python benchmarks/look_at_pages.py SITE --axe /tmp/node_modules/axe-core/axe.min.js --shots SHOTS

Each page is opened at 1,280 and 390 pixels, light and dark. A line says what was measured; the exit status is
1 if a limit is broken. Without --axe the rest is still measured.
"""

from __future__ import annotations

import argparse
import functools
import http.server
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

CHROMIUM = Path("/usr/bin/chromium")
WIDTHS, SCHEMES = (1280, 390), ("light", "dark")
MOST_BYTES, MOST_PAINT_MS = 1_000_000, 1000
SERIOUS = ("serious", "critical")
PAGES = (
    *("", "concepts/", "results/", "policies/", "policies/arena/", "environments/", "environments/elastic/"),
    *("boards/", "boards/testbed/", "boards/testbed/sorted.html", "learned-agents/", "tutorial/"),
    *("train-an-agent/", "own-trace-and-cluster/", "reproduction/", "commands/", "commands/run/"),
)


class Look(NamedTuple):
    """What was seen of a page at one width and scheme.

    Attributes
    ----------
    size : int
        Bytes of the page and all that it loads.
    paint_ms : float
        Milliseconds to the first paint with content.
    overflow : int
        Pixels by which the page is wider than its window.
    serious : list of str
        Findings of axe-core that are serious or critical, "rule: element".
    """

    page: str
    width: int
    scheme: str
    size: int
    paint_ms: float
    overflow: int
    serious: list[str]

    def broken(self) -> list[str]:
        """Return the limits that the page breaks."""
        found = list(self.serious)
        if self.size > MOST_BYTES:
            found.append(f"{self.size:,} bytes, more than {MOST_BYTES:,}")
        if self.paint_ms > MOST_PAINT_MS:
            found.append(f"first paint after {self.paint_ms:.0f} ms, more than {MOST_PAINT_MS}")
        return found + ([f"{self.overflow} pixels wider than its window"] if self.overflow > 0 else [])


@contextmanager
def served(site: Path) -> Iterator[str]:
    """Serve a folder on this machine; give its address."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            pass

    handler = functools.partial(Quiet, directory=str(site))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


def look(
    browser: Any, address: str, page: str, width: int, scheme: str, axe: Path | None, shot: Path | None = None
) -> Look:
    """Open a page and measure it; save a picture of its first screen."""
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    opened, sizes = context.new_page(), []
    opened.on("response", lambda response: sizes.append(len(response.body())) if response.ok else None)
    opened.goto(address + page, wait_until="load")
    opened.wait_for_timeout(300)
    paint_ms = opened.evaluate("performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? 0")
    overflow = opened.evaluate("document.documentElement.scrollWidth - window.innerWidth")
    if shot is not None:
        opened.screenshot(path=str(shot))
    serious: list[str] = []
    if axe is not None:
        opened.add_script_tag(path=str(axe))
        for violation in opened.evaluate("axe.run()")["violations"]:
            if violation["impact"] in SERIOUS:
                where = [str(node["target"][0])[:80] for node in violation["nodes"]]
                serious.append(f"{violation['id']}: {len(where)} x {where[0]}")
    context.close()
    return Look(page or "home", width, scheme, sum(sizes), paint_ms, overflow, serious)


def main(argv: list[str] | None = None) -> int:
    """Look at all pages; return 1 if a limit is broken."""
    from playwright.sync_api import sync_playwright

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("site", type=Path)
    parser.add_argument("pages", nargs="*", default=PAGES)
    parser.add_argument("--axe", type=Path)
    parser.add_argument("--shots", type=Path)
    given = parser.parse_args(argv)
    bad = 0
    with sync_playwright() as driver, served(given.site) as address:
        browser = driver.chromium.launch(executable_path=str(CHROMIUM), args=["--no-sandbox"])
        for page in given.pages:
            for width in WIDTHS:
                for scheme in SCHEMES:
                    name = f"{page.strip('/').replace('/', '-') or 'home'}-{width}-{scheme}.png"
                    shot = given.shots / name if given.shots else None
                    seen = look(browser, address, page, width, scheme, given.axe, shot)
                    broken = seen.broken()
                    bad += bool(broken)
                    said = "; ".join(broken) or "good"
                    print(
                        f"{seen.page} {width} {scheme}: {seen.size:,} bytes, {seen.paint_ms:.0f} ms: {said}"
                    )
        browser.close()
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
