"""A page of each notebook of docs/, with the outputs it was saved with."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent


def notebook_pages() -> dict[str, str | bytes]:
    """Return the pages of the notebooks, and the pictures in them, by path."""
    found: dict[str, str | bytes] = {}
    for path in sorted(DOCS.glob("*.ipynb")):
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        parts = []
        for cell in cells:
            source = "".join(cell["source"])
            parts.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
            for place, output in enumerate(cell.get("outputs", ())):
                picture = f"{path.stem}-{cell['id']}-{place}.png"
                text, png = shown(output)
                if png is not None:
                    found[picture] = png
                    parts.append(f"![What this cell draws]({picture})")
                elif text:
                    parts.append(f"```text\n{text}\n```")
        parts.insert(1, f"The page is a notebook: [{path.name}]({path.name}).")
        found[f"{path.stem}.md"] = "\n\n".join(parts) + "\n"
    return found


def shown(output: dict[str, Any]) -> tuple[str, bytes | None]:
    """Return the text of a cell's output, and its picture, if it is one."""
    if output["output_type"] == "stream":
        return "".join(output["text"]).rstrip(), None
    png = output["data"].get("image/png")
    return "".join(output["data"].get("text/plain", "")), None if png is None else base64.b64decode(png)
