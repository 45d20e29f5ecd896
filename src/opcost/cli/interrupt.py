"""Ctrl-C is answered at once, whatever runs.

Python handles signals between two of its own steps, and a kernel or a library may take seconds for one. So a thread of its own
waits for the signal and says what is being stopped; the exception follows when Python comes to it.
"""

from __future__ import annotations

import os
import signal
import sys
import threading

from opcost.core.progress import Teller, stopped, stopping
from opcost.core.spelling import spelled_for

WIPE = "\r\x1b[K"
"""Back over a line that says how far something is."""


class Interrupts:
    """Says once what an interrupt stops."""

    def __init__(self, command: str) -> None:
        self._command = command
        self._said = threading.Lock()

    def watch(self) -> None:
        """From now on interrupts are answered by a thread."""
        reader, writer = os.pipe()
        os.set_blocking(writer, False)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        Teller(target=self._wait, args=(reader,), name="opcost-interrupts", daemon=True).start()

    def _wait(self, reader: int) -> None:
        while found := os.read(reader, 1):
            if found[0] == signal.SIGINT:
                self.say()

    def say(self, what: str = "") -> None:
        """What was stopped, unless it was said before."""
        words = what or stopped() or f"opcost {self._command}".rstrip() + " was stopped"
        if not self._said.acquire(blocking=False):
            return
        stopping.set()
        wipe = WIPE if sys.stderr.isatty() else ""
        sys.stderr.write(f"{wipe}opcost: {spelled_for(sys.stderr, f'interrupted: {words}')}\n")
        sys.stderr.flush()
