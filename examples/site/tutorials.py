"""The tutorials as pages and notebooks: they are run when the site is built, and the output is below each cell."""

import base64
import html
import json
from pathlib import Path
from typing import Any

from cells import Cell, Figure, picture, run_cells
from mkdocs.structure.files import File, Files
from outside import TUTORIALS, rewritten, site_path


def on_files(files: Files, config: Any) -> Files:
    """Add a page and its pictures for each tutorial."""
    for path in sorted(TUTORIALS.glob("*.py")):
        cells = run_cells(path)
        for number, figure in enumerate(figures(cells), start=1):
            files.append(File.generated(config, picture_path(path, number), content=picture(figure)))
        files.append(File.generated(config, f"tutorials/{path.name}", abs_src_path=str(path)))
        files.append(File.generated(config, f"tutorials/{path.stem}.ipynb", content=notebook(cells)))
        files.append(File.generated(config, site_path(path), content=page(path, cells)))
    return files


def figures(cells: list[Cell]) -> list[Figure]:
    """The figures that cells show, in their order."""
    return [cell.shown for cell in cells if isinstance(cell.shown, Figure)]


def picture_path(path: Path, number: int) -> str:
    """Where the picture with this number is in the site."""
    return f"tutorials/{path.stem}-{number}.png"


def page(path: Path, cells: list[Cell]) -> str:
    """The Markdown of a tutorial."""
    parts, number = [], 0
    for cell in cells:
        if not cell.code:
            parts.append(rewritten(cell.source, path))
            continue
        parts.append(f"```python\n{cell.source}\n```")
        if cell.printed:
            parts.append(output(f"<pre><code>{html.escape(cell.printed.rstrip())}</code></pre>"))
        if isinstance(cell.shown, Figure):
            number += 1
            parts.append(f"![{alternative(cell.shown)}]({Path(picture_path(path, number)).name})")
        elif cell.shown is not None:
            parts.append(output(as_html(cell.shown)))
    parts.append(f"Run it yourself: [notebook]({path.stem}.ipynb), [script]({path.name}).")
    return "\n\n".join(parts)


def notebook(cells: list[Cell]) -> str:
    """A tutorial as a Jupyter notebook, with the output of its cells."""
    entries: list[dict[str, Any]] = []
    for i, cell in enumerate(cells):
        entry: dict[str, Any] = {"id": f"cell-{i}", "metadata": {}, "source": cell.source}
        if not cell.code:
            entries.append({"cell_type": "markdown", **entry})
            continue
        outputs: list[dict[str, Any]] = []
        if cell.printed:
            outputs.append({"output_type": "stream", "name": "stdout", "text": cell.printed})
        if cell.shown is not None:
            data = {"text/html": as_html(cell.shown)}
            if isinstance(cell.shown, Figure):
                data = {"image/png": base64.b64encode(picture(cell.shown)).decode()}
            outputs.append({"output_type": "display_data", "metadata": {}, "data": data})
        entries.append({"cell_type": "code", "execution_count": None, "outputs": outputs, **entry})
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return json.dumps({"cells": entries, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5})


def alternative(figure: Figure) -> str:
    """What a figure shows, for those who cannot see it: its titles and the names of its axes."""
    texts = [x for ax in figure.axes for x in (ax.get_title(), ax.get_xlabel(), ax.get_ylabel()) if x]
    return ", ".join(dict.fromkeys(x.replace("\n", " ") for x in texts)).replace("[", "(").replace("]", ")")


def as_html(value: Any) -> str:
    """A table as a table, and all else as text."""
    if hasattr(value, "to_html"):
        return str(value.to_html(border=0)).replace(' class="dataframe"', "").replace("<th></th>", "<td></td>")
    return f"<pre><code>{html.escape(repr(value))}</code></pre>"


def output(text: str) -> str:
    """What a cell gave; the blank lines keep Markdown from reading it."""
    return f'<div class="cell-output">{text}</div>'
