"""MkDocs hook: pages made from the code, so that they cannot fall behind it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from command_pages import command_index, help_section
from environment_pages import environment_pages
from linked_pages import board_pages, repository_url, source_pages, with_site_links
from notebook_pages import notebook_pages

ROOT = Path(__file__).parent.parent
API = (
    "clustergym.results.measured_run",
    "clustergym.scenarios.by_name",
    "clustergym.models.model_class",
    "clustergym.interface.environments",
    "clustergym.interface.policy",
    "clustergym.scenarios.scenario",
    "clustergym.metrics.catalogue",
    "clustergym.workload.trace",
    "clustergym.oracle.base",
    "clustergym.sim.engine",
    "clustergym.sim.log",
    "clustergym.sim.links",
    "clustergym.scenarios.disturbance",
    "clustergym.scenarios.disturbances.failures",
    "clustergym.scenarios.disturbances.reservations",
    "clustergym.envs.registration",
    "clustergym.envs.driver",
    "clustergym.envs.observations",
    "clustergym.envs.rewards",
    "clustergym.envs.scheduling",
    "clustergym.envs.scheduling_costs",
)


def on_config(config: Any) -> Any:
    """Let every page link to the repository, once pyproject.toml says where it is."""
    config.repo_url = repository_url()
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
    if path.parent.name == "commands":
        markdown = f"{markdown}\n{help_section(path.stem)}"
    return markdown if path.parts[0] == "source" else with_site_links(markdown, page.file.src_uri)


def pages() -> dict[str, str | bytes]:
    """Return the generated pages, and the pictures in them, by path."""
    found: dict[str, str | bytes] = environment_pages() | board_pages() | source_pages()
    found |= notebook_pages()
    found |= {"commands.md": command_index(), "api.md": _api()}
    presets = sorted((ROOT / "conf" / "policy").glob("*.yaml"))
    found["policies.md"] = _policies(presets)
    return found | {f"policies/{path.stem}.md": _policy(path) for path in presets}


def _class_of(name: str) -> tuple[str, type]:
    from clustergym.interface.registry import class_of

    cls = class_of("policy", name)
    return f"{cls.__module__}.{cls.__qualname__}", cls


def _policies(presets: list[Path]) -> str:
    rows = ["| `policy=` | in a line | decides on |", "| --- | --- | --- |"]
    for path in presets:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
        _, cls = _class_of(content["name"])
        summary = (cls.__doc__ or "").splitlines()[0].replace("|", "\\|")
        knows = getattr(cls, "information_class", "")
        shown = str(knows) if isinstance(knows, str) else "depends on a parameter"
        rows.append(f"| [{path.stem}](policies/{path.stem}.md) | {summary} | {shown} |")
    return (
        "# Policies\n\nEach runs by `policy=NAME`; each page says what the paper does, what is done here, "
        "and what differs.\n\n" + "\n".join(rows) + "\n"
    )


def _policy(path: Path) -> str:
    text = path.read_text(encoding="utf-8")
    where, _ = _class_of(yaml.safe_load(text)["name"])
    return (
        f"# {path.stem}\n\n`python -m clustergym.run policy={path.stem}`\n\n"
        f"Its configuration, `conf/policy/{path.name}`:\n\n```yaml\n{text.strip()}\n```\n\n"
        # The page is read from the source, which lies in the folder `policies/` of the checkout.
        f"::: {where.removeprefix('clustergym.')}\n    options:\n      members: false\n"
    )


def _api() -> str:
    parts = ["# Python API\n"]
    parts += [f"## {name}\n\n::: {name}\n    options:\n      show_root_heading: false\n" for name in API]
    return "\n".join(parts)
