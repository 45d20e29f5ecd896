"""`opcost view SOURCE...`: the page of any result, opened in a browser, written to a file, or served while its source changes."""

import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Group

from opcost.cli.flags import SOURCE, frontend_flags, keywords, parameter
from opcost.cli.models import counting
from opcost.cli.output import check_file
from opcost.cli.printing import say, warn
from opcost.core.files import write_text
from opcost.core.showing import open_page
from opcost.errors import InputError, OpcostError
from opcost.options import Counting, Showing
from opcost.viewing import page_of

VIEWING = Group("Where it is shown", sort_key=0)
PORT = 8765
ViewFlags: Any = frontend_flags(Counting, Showing, only=("quiet",))


def view(
    *sources: Annotated[str, parameter(
        group=SOURCE,
        help="A model or a report as for `opcost count`, a profile or a trace, a checkpoint; several are compared.")],
    output: Annotated[Path | None, parameter(
        name=["--output", "-o"], group=VIEWING, metavar="FILE.html",
        help="Write the page to this file; without it, it is opened in a browser.")] = None,
    serve: Annotated[bool, parameter(
        group=VIEWING, help="Serve the page to this machine, and again when the source changes.")] = False,
    port: Annotated[int, parameter(
        group=VIEWING, metavar="N", show_default=True, help="Port to serve at; 0 takes a free one.")] = PORT,
    flags: ViewFlags = None,
) -> int:  # fmt: skip
    """Show a page: what a model costs, where the time of a profile goes, what a checkpoint holds, or how models differ."""
    if serve:
        from opcost.cli.main import TYPED

        if output is not None:
            raise InputError("--serve shows the page, and -o writes it", hint="leave one of them out")
        return serve_page(sources, [word for word in TYPED.get() if word != "--serve"], port)
    if output is not None:
        if output.suffix.lower() != ".html":
            raise InputError(f"{output} does not end in .html", hint="other formats are written by the other commands")
        check_file(output, "report")
    with counting(f"viewing {' and '.join(sources[:2])}", quiet=(flags or {}).get("quiet", False)):
        text = page_of(sources, keywords(flags))
    if output is not None:
        write_text(output, text)
        return 0
    path, opened = open_page(text)
    say(f"{path}")
    if not opened:
        say("no browser was found; -o FILE.html writes the page elsewhere, --serve shows it to a browser elsewhere")
    return 0


# -- serving: the page is written by a process of its own whenever a file that it is made of changes ---------------------------

HOST = "127.0.0.1"
PAUSE = 0.5  # seconds between two looks at the files
MOST_CLIENTS = 16
ANSWERED_WITHIN = 5  # seconds after which an idle client is dropped
Stamp = tuple[tuple[str, int, int], ...]


class WatchedPage:
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
            from opcost.views.html import served

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
    """Names, times and sizes of the files, and of those in folders: another value when one changes."""
    found = []
    for path in files:
        for each in sorted(path.iterdir()) if path.is_dir() else [path]:
            try:
                state = each.stat()
            except OSError:  # gone in this moment, or about to be replaced
                continue
            found.append((str(each), state.st_mtime_ns, state.st_size))
    return tuple(found)


def serve_page(sources: Sequence[str], words: Sequence[str], port: int) -> int:
    """Serve until Ctrl-C."""
    watched = WatchedPage(sources, words)
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
    """Answers a limited number of clients at a time; others wait."""

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


def _handler(watched: WatchedPage) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        """Serves the page and its version."""

        timeout = ANSWERED_WITHIN

        def do_GET(self) -> None:
            host = self.headers.get("Host", "").partition(":")[0]
            if host not in (HOST, "localhost"):  # DNS rebinding
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
            """No line for every request."""

    return Handler
