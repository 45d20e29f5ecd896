"""A page served to this machine alone, written anew by a process of its own whenever a file that it is made of changes."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from opcost.cli.saying import say, warn
from opcost.errors import InputError, OpcostError

HOST = "127.0.0.1"
PAUSE = 0.5
"""Seconds between two looks at the files."""
MOST_CLIENTS = 16
ANSWERED_WITHIN = 5
"""Seconds that a client may say or take nothing."""
Stamp = tuple[tuple[str, int, int], ...]


class Watched:
    """The page of some sources, as it was last written without an error."""

    def __init__(self, sources: Sequence[str], words: Sequence[str]) -> None:
        self.words = words
        self.files = list(files_of(sources))
        self.version = 0
        self.text = ""
        self.stamp: Stamp = ()

    def refresh(self) -> str:
        """Write the page anew if a file has changed; what went wrong, if something did, while the old page stays."""
        stamp = stamp_of(self.files)
        if self.text and stamp == self.stamp:
            return ""
        self.stamp = stamp
        with tempfile.TemporaryDirectory(prefix="opcost-") as folder:
            page = Path(folder) / "page.html"
            # The source may be Python code, which a process imports once.
            command = [sys.executable, "-m", "opcost", *self.words, "-o", str(page), "--quiet"]
            done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - this very command
            if done.returncode:
                return done.stderr.strip()
            from opcost.views.html.document import served

            self.text = served(page.read_text(encoding="utf-8"))
        self.version += 1
        return ""


def files_of(sources: Iterable[str]) -> Iterable[Path]:
    """The files and folders that sources name, such as `net.py` of `net.py:Net`."""
    for source in sources:
        for name in (source, source.rpartition(":")[0]):
            if name and Path(name).exists():
                yield Path(name)
                break


def stamp_of(files: Iterable[Path]) -> Stamp:
    """What changes when one of the files, or one in a folder of them, does."""
    found = []
    for path in files:
        for each in sorted(path.iterdir()) if path.is_dir() else [path]:
            try:
                told = each.stat()
            except OSError:  # gone in this moment, or about to be replaced
                continue
            found.append((str(each), told.st_mtime_ns, told.st_size))
    return tuple(found)


def serve_page(sources: Sequence[str], words: Sequence[str], port: int) -> int:
    """Serve until somebody interrupts it."""
    watched = Watched(sources, words)
    if wrong := watched.refresh():
        raise OpcostError(wrong.removeprefix("opcost: "))
    try:
        server = _Server((HOST, port), _handler(watched))
    except (OSError, OverflowError) as exc:
        raise InputError(f"port {port} cannot be used: {exc}", hint="--port 0 takes any that is free") from exc
    say(f"http://{HOST}:{server.server_port}/  (Ctrl-C ends it)")
    sys.stdout.flush()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        while True:
            threading.Event().wait(PAUSE)
            if wrong := watched.refresh():
                warn(wrong)
    except KeyboardInterrupt:
        return 0
    finally:
        server.shutdown()
        server.server_close()


class _Server(ThreadingHTTPServer):
    """Answers so many clients at a time; others wait until one of them is answered or gave up."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._free = threading.BoundedSemaphore(MOST_CLIENTS)

    def process_request(self, request: Any, client_address: Any) -> None:
        self._free.acquire()
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._free.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()


def _handler(watched: Watched) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        """Answers two questions: the page, and which version of it there is."""

        timeout = ANSWERED_WITHIN

        def do_GET(self) -> None:
            host = self.headers.get("Host", "").partition(":")[0]
            if host not in (HOST, "localhost"):  # another's name for this machine may be a trap
                self.send_error(403)
            elif self.path == "/":
                self._answer("text/html; charset=utf-8", watched.text)
            elif self.path == "/version":
                self._answer("text/plain", str(watched.version))
            else:
                self.send_error(404)

        def _answer(self, kind: str, text: str) -> None:
            data = text.encode()
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(data)))
            self.send_header("Cache-Control", "no-store")
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - as the library calls it
            """Nobody wants to read of every question."""

    return Handler
