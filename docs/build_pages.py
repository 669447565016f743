"""MkDocs hook: pages made from the code, so that they cannot fall behind it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from command_pages import command_index, help_section
from environment_pages import environment_pages
from linked_pages import board_pages, repository_url, source_pages, with_site_links
from notebook_pages import notebook_pages
from policy_pages import PRESETS, policy_pages

ROOT = Path(__file__).parent.parent
API = (
    "clustergym.results.measured_run",
    "clustergym.scenario.by_name",
    "clustergym.scenario.policy",
    "clustergym.scenario.view",
    "clustergym.oracle.models.model_spec",
    "clustergym.scenario.environments",
    "clustergym.scenario.scenario",
    "clustergym.results.metrics.catalogue",
    "clustergym.trace.trace",
    "clustergym.oracle.base",
    "clustergym.sim.engine",
    "clustergym.sim.log",
    "clustergym.sim.links",
    "clustergym.scenario.disturbance",
    "clustergym.scenario.disturbances.failures",
    "clustergym.scenario.disturbances.reservations",
    "clustergym.envs.registration",
    "clustergym.envs.driver",
    "clustergym.envs.observations",
    "clustergym.envs.rewards",
    "clustergym.envs.scheduling",
    "clustergym.envs.scheduling_costs",
)

NOT_SEARCHED = {
    *("boards", "decisions", "learned-agents", "oracle-accuracy.md", "reproduction", "source", "testing.md"),
}
"""Pages and folders of single studies and for developers: every page loads the search's index."""

TABLES_NOT_SEARCHED = (
    "api",
    "boards",
    "environments",
    "learned-agents",
    "placement",
    "policies",
    "reproduction",
    "results",
)
"""Pages and folders whose tables hold figures or repeat parameters."""

TABLES_SEARCHED = ("environments/elastic.md", "environments/placement.md", "environments/sharing.md")
"""One environment of each class: parameters are found once."""


def on_config(config: Any) -> Any:
    """Let every page link to the repository, once pyproject.toml says where it is, and list the policies."""
    config.repo_url = repository_url()
    every = next(one["Reference"] for one in config.nav if "Reference" in one)
    policies: list[str] = next(one["Policies"] for one in every if "Policies" in one)
    policies += [f"policies/{path.stem}.md" for path in PRESETS]
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add the generated pages."""
    from mkdocs.structure.files import File

    for name, text in pages().items():
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Append its help to the page of a command; let links to files and folders lead to their pages."""
    path = Path(page.file.src_uri)
    if path.parts[0] in NOT_SEARCHED or len(path.parts) > 3:
        page.meta["search"] = {"exclude": True}
    if path.name in ("index.md", "policies.md"):
        page.meta["hide"] = ["toc", "navigation"]
    if path.parent == Path("commands"):
        markdown = f"{markdown}\n{help_section(path.stem)}"
    return markdown if path.parts[0] == "source" else with_site_links(markdown, page.file.src_uri)


def on_page_content(html: str, page: Any, **_: Any) -> str:
    """Keep code, figures and repeated parameters out of the search; titles and sentences stay in it."""
    html = html.replace("<pre>", "<pre data-search-exclude>")
    top = page.file.src_uri.split("/")[0].removesuffix(".md")
    if top not in TABLES_NOT_SEARCHED or page.file.src_uri in TABLES_SEARCHED:
        return html
    return html.replace("<table>", "<table data-search-exclude>")


def on_post_page(output: str, **_: Any) -> str:
    """Name the theme's search to those who do not see it."""
    named = 'data-md-component="search" role="dialog"'
    return output.replace(named, f'{named} aria-label="Search"')


def pages() -> dict[str, str | bytes]:
    """Return the generated pages, and the pictures in them, by path."""
    found: dict[str, str | bytes] = environment_pages() | board_pages() | source_pages()
    found |= notebook_pages()
    found |= {"commands.md": command_index(), "api.md": _api()}
    return found | policy_pages()


def _api() -> str:
    parts = ["# Python API\n"]
    parts += [f"## {name}\n\n::: {name}\n    options:\n      show_root_heading: false\n" for name in API]
    return "\n".join(parts)
