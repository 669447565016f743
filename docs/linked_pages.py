"""Pages of what the docs link to elsewhere in the repository: boards, and files as they are."""

from __future__ import annotations

import os
import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent
LINK = re.compile(r"(\]\()([^)\s#:]+)((?:#[^)\s]*)?\))")
MADE = {
    "conf/policy": "policies.md",
    "docs/commands": "commands.md",
    "docs/thirty-minutes.ipynb": "thirty-minutes.md",
    "clustergym/results/measured_run.py": "api.md",
    "clustergym/scenario/policy.py": "api.md#clustergymscenariopolicy",
    "clustergym/envs/scheduling_costs.py": "api.md#clustergymenvsscheduling_costs",
    "clustergym/envs/scheduling_parameters.py": "environments/elastic.md#arguments",
    **{
        f"conf/policy/{path.name}": f"policies/{path.stem}.md"
        for path in (ROOT / "conf/policy").glob("*.yaml")
    },
}
"""Pages that are made from a file or folder, which is what a link to them names, so that it leads somewhere
in the repository too."""

LANGUAGES = {".py": "python", ".yaml": "yaml", ".toml": "toml", ".sh": "sh"}


def repository_url() -> str | None:
    """Return the address of the repository, `project.urls.Repository`; None: it has none."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    url: str | None = project.get("urls", {}).get("Repository")
    return url


def board_pages() -> dict[str, str | bytes]:
    """Return the boards' pages, by path."""
    found: dict[str, str | bytes] = {}
    for path in sorted((ROOT / "leaderboards").rglob("README.md")):
        text, place = path.read_text(encoding="utf-8"), path.relative_to(ROOT / "leaderboards")
        found[f"boards/{place}"] = text
    return found


def source_pages() -> dict[str, str | bytes]:
    """Return a page of each file outside of docs/ that a page of docs/ links to, by path."""
    found: dict[str, str | bytes] = {}
    for page in sorted((ROOT / "docs").rglob("*.md")):
        for _, target, _ in LINK.findall(page.read_text(encoding="utf-8")):
            path = _in_repository(page.parent.relative_to(ROOT), target)
            if (
                path not in MADE
                and not path.startswith(("docs/", "leaderboards/"))
                and (ROOT / path).is_file()
            ):
                text = (ROOT / path).read_text(encoding="utf-8").rstrip()
                language = LANGUAGES.get(Path(path).suffix, "text")
                found[_source(path)] = f"# {path}\n\n````{language}\n{text}\n````\n"
    return found


def with_site_links(markdown: str, page: str) -> str:
    """Let the links of a page that lead elsewhere in the repository lead to the pages made of that."""
    origin = (
        Path("leaderboards", page[len("boards/") :]) if page.startswith("boards/") else Path("docs", page)
    )

    def rewritten(found: re.Match[str]) -> str:
        path = _in_repository(origin.parent, found[2])
        where = _page_of(path)
        if where is None:
            return found[0]
        name, _, anchor = where.partition("#")
        fragment = f"#{anchor})" if anchor else found[3]
        return f"{found[1]}{os.path.relpath(name, Path(page).parent)}{fragment}"

    return LINK.sub(rewritten, markdown)


def _in_repository(folder: Path, target: str) -> str:
    return os.path.normpath(folder / target)


def _source(path: str) -> str:
    return f"source/{path}.md"


def _page_of(path: str) -> str | None:
    """Return the page of a path of the repository; None: it has none."""
    if path in MADE:
        return MADE[path]
    if path.startswith("leaderboards") and (ROOT / path).is_dir():
        path = f"{path}/README.md"
    if path.startswith("leaderboards/") and path.endswith("/README.md"):
        return f"boards/{path.removeprefix('leaderboards/')}"
    if not (ROOT / path).is_file():
        return None
    return path.removeprefix("docs/") if path.startswith("docs/") else _source(path)
