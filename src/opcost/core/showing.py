"""A page shown to the user: below the cell of a notebook, or in a browser."""

import sys
from pathlib import Path

from opcost.core.files import write_text

HEIGHT = 720  # pixels of a page in a notebook, which the reader can change by its corner


def show_page(text: str) -> Path | None:
    """Show a page in the notebook that runs this, else in a browser; the file of the latter."""
    python = sys.modules.get("IPython")
    shell = None if python is None else python.get_ipython()
    if getattr(shell, "kernel", None) is None:
        return open_page(text)[0]
    from html import escape

    from IPython.display import display

    style = f"width:100%;height:{HEIGHT}px;border:0;resize:vertical;overflow:auto"
    frame = f'<iframe sandbox="allow-scripts allow-downloads" style="{style}" srcdoc="{escape(text)}"></iframe>'
    display({"text/html": frame, "text/plain": "a page, which only a browser shows"}, raw=True)
    return None


def open_page(text: str) -> tuple[Path, bool]:
    """Write a page to a temporary file and open it in a browser; the file, and whether there was a browser."""
    import tempfile
    import webbrowser

    with tempfile.NamedTemporaryFile("w", prefix="opcost-", suffix=".html", delete=False, encoding="utf-8") as file:
        path = Path(file.name)
    write_text(path, text)
    return path, webbrowser.open(path.as_uri())
