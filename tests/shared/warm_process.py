"""Programs that start in milliseconds: a process that has loaded torch, and counted a model, forks for each of them.

Its `python` and `opcost` are called as those of an environment are. Each call is a process of its own with its own streams,
folder and environment; what one of them loads or changes does not reach the next.
"""

from __future__ import annotations

import json
import os
import runpy
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

_CLIENT = """#!{python} -IS
import json, os, socket, sys
server = socket.socket(socket.AF_UNIX)
server.connect({address!r})
words = json.dumps([os.path.basename(sys.argv[0]), sys.argv[1:], os.getcwd(), dict(os.environ)])
socket.send_fds(server, [words.encode()], [0, 1, 2])
sys.exit(int(server.recv(8) or 1))
"""


@contextmanager
def warm_programs() -> Iterator[Path]:
    """A folder with `python`, which takes a script or `-c CODE`, and `opcost`."""
    with TemporaryDirectory(prefix="warm-") as folder:
        address = str(Path(folder) / "server")
        for name in ("python", "opcost"):
            program = Path(folder) / name
            program.write_text(_CLIENT.format(python=sys.executable, address=address), encoding="utf-8")
            program.chmod(0o755)
        with subprocess.Popen([sys.executable, __file__, address], stdout=subprocess.PIPE) as server:
            assert server.stdout is not None
            assert server.stdout.readline() == b"ready\n"
            yield Path(folder)
            server.terminate()


def _serve(address: str) -> None:
    del sys.path[0]  # the folder of this file
    import torch  # what every program would wait for

    import opcost
    import opcost.cli.main

    opcost.count(torch.nn.Linear(1, 1), torch.zeros(1, 1))

    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    server = socket.socket(socket.AF_UNIX)
    server.bind(address)
    server.listen()
    print("ready", flush=True)
    while True:
        client, _ = server.accept()
        if not os.fork():
            server.close()
            _run(client)
        client.close()


def _run(client: socket.socket) -> None:
    """Run what a client asks for in one more process, and tell the client its exit code."""
    words, streams, _, _ = socket.recv_fds(client, 1 << 20, 3)
    name, arguments, folder, environment = json.loads(words)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    child = os.fork()
    if child:
        for each in streams:
            os.close(each)
        _, status = os.waitpid(child, 0)
        client.sendall(b"%d" % (os.waitstatus_to_exitcode(status) & 255))
        os._exit(0)
    client.close()
    for number, each in enumerate(streams):
        os.dup2(each, number)
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - for as long as the process lives
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", buffering=1, closefd=False)  # noqa: SIM115
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    code = 1
    try:
        code = _call(name, arguments)
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:  # noqa: BLE001 - as an interpreter shows it
        sys.excepthook(*sys.exc_info())
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(code)


def _call(name: str, arguments: list[str]) -> int:
    if name == "opcost":
        from opcost.cli.main import main

        sys.argv = [name, *arguments]
        main()
    elif arguments[0] != "-c":
        sys.argv = arguments
        sys.path.insert(0, str(Path(arguments[0]).parent))
        runpy.run_path(arguments[0], run_name="__main__")
    else:
        sys.argv = ["-c"]
        sys.path.insert(0, "")
        exec(compile(arguments[1], "<string>", "exec"), {"__name__": "__main__"})
    return 0


if __name__ == "__main__":
    _serve(sys.argv[1])
