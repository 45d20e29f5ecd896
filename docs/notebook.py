"""Runs docs/notebook.ipynb in a kernel of Jupyter and keeps what its cells show: `python docs/notebook.py`.

It needs nbclient and ipykernel. A test runs the same cells without them and compares.
"""
# ruff: noqa: INP001 (a script, not a package)

from __future__ import annotations

from pathlib import Path

HERE = Path(__file__).resolve().parent


def main() -> None:
    """Run every cell from the root of the repository; what a kernel adds for itself is left out."""
    import nbformat
    from nbclient import NotebookClient

    path = HERE / "notebook.ipynb"
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(notebook, kernel_name="python3", record_timing=False).execute(cwd=str(HERE.parent))
    for cell in notebook.cells:
        cell.metadata.clear()
    notebook.metadata = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    nbformat.write(notebook, path)


if __name__ == "__main__":
    main()
