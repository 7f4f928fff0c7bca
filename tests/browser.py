"""Pages in a real browser: Chromium opens them in frames of a given width and measures them.

A small server on this machine gives the pages. No other host can be reached.
"""

import json
import re
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import Queue
from typing import Any

import pytest

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "chrome"))), None)
needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")
LONGEST_S = 60
PROBE = "probe.html"
PAGE = """<!doctype html><meta charset="utf-8"><body><script>
"use strict";
const wait = (ms) => new Promise((done) => setTimeout(done, ms));
const look = async ([path, width, script]) => {
  const frame = document.createElement("iframe");
  frame.style.cssText = `border: 0; width: ${width}px; height: 800px`;
  const loaded = new Promise((done) => { frame.onload = done; });
  frame.src = path;
  document.body.append(frame);
  await loaded;
  const page = frame.contentDocument, window = frame.contentWindow;
  await wait(50);
  const images = [...page.images];
  for (const image of images) image.loading = "eager";
  await Promise.all(images.map((image) => image.decode().catch(() => null)));
  const body = page.scrollingElement;
  const found = {
    path, width,
    too_wide: body.scrollWidth - body.clientWidth,
    images: images.length,
    broken: images.filter((image) => !image.naturalWidth).map((image) => image.src.slice(0, 99)),
    text: page.body.innerText.length,
    loads: window.performance.getEntriesByType("resource").map((entry) => entry.name),
  };
  const more = new Function("page", "window", "wait", `return (async () => {${script}})()`);
  const rest = await more(page, window, wait);
  frame.remove();
  return { ...found, ...rest };
};
(async () => {
  const found = [];
  try { for (const one of JOBS) found.push(await look(one)); }
  catch (error) { found.push({ error: String(error) }); }
  await fetch("/found", { method: "POST", body: JSON.stringify(found) });
})();
</script>"""


@dataclass(frozen=True)
class Seen:
    """What a browser found.

    Args:
        pages: what was measured, one for each job
        console: what the pages wrote on the console, errors of the browser included
    """

    pages: list[dict[str, Any]]
    console: list[str]


def browse(root: Path, jobs: Sequence[tuple[str, int, str]], downloads: Path | None = None) -> Seen:
    """Open pages below `root`: each job is a path, a width, and the body of an async function.

    The function is called with (page, window, wait) and may return an object of more findings.
    """
    text = PAGE.replace("JOBS", json.dumps(jobs).replace("<", "\\u003c"))
    with _served(root, text) as server, _profile(downloads) as profile:
        command = [str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"]
        command += ["--disable-background-networking", "--disable-component-update"]
        command += ["--disable-sync", "--disable-dev-shm-usage", "--enable-logging=stderr"]
        command += ["--remote-debugging-port=0", "--window-size=1400,900"]
        command += [f"--user-data-dir={profile}"]
        command += ["--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"]
        command += [f"http://127.0.0.1:{server.server_port}/{PROBE}"]
        log = profile / "log"
        with log.open("w") as file, subprocess.Popen(command, stdout=file, stderr=file) as process:
            try:
                pages = server.found.get(timeout=LONGEST_S)
                for _ in range(100):
                    if downloads is None or not any(downloads.glob("*.crdownload")):
                        break
                    time.sleep(0.1)
            finally:
                process.terminate()
        console = re.findall(r'CONSOLE[^"]*"(.*)', log.read_text(errors="replace"))
    return Seen(pages, console)


class _Server(ThreadingHTTPServer):
    """Gives the files of a folder and the probe, and takes what the probe found."""

    daemon_threads = True

    def __init__(self, root: Path, probe: str) -> None:
        self.found: Queue[list[dict[str, Any]]] = Queue()
        self.probe = probe
        super().__init__(("127.0.0.1", 0), partial(_Handler, directory=str(root)))


class _Handler(SimpleHTTPRequestHandler):
    server: _Server

    def do_GET(self) -> None:
        if self.path == f"/{PROBE}":
            self._answer(200, self.server.probe.encode())
        elif self.path == "/favicon.ico":
            self._answer(204, b"")
        else:
            super().do_GET()

    def do_POST(self) -> None:
        content = self.rfile.read(int(self.headers["Content-Length"]))
        self._answer(204, b"")
        self.server.found.put(json.loads(content))

    def _answer(self, code: int, content: bytes) -> None:
        self.send_response(code)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def _served(root: Path, probe: str) -> Iterator[_Server]:
    with _Server(root, probe) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield server
        finally:
            server.shutdown()


@contextmanager
def _profile(downloads: Path | None) -> Iterator[Path]:
    """A fresh profile, which stores downloads in a folder without asking."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        if downloads is not None:
            settings = {"default_directory": str(downloads), "prompt_for_download": False}
            settings["directory_upgrade"] = True
            multiple = {"default_content_setting_values": {"automatic_downloads": 1}}
            (Path(name) / "Default").mkdir()
            unchecked = {"safebrowsing": {"enabled": False}}  # which would ask a host
            text = json.dumps({"download": settings, "profile": multiple, **unchecked})
            (Path(name) / "Default" / "Preferences").write_text(text)
        yield Path(name)
