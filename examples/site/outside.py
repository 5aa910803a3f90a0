"""Pages link to files outside of the guide as they do on a code host: the site takes what they link to.

A link such as `../../benchmarks/results/decisions.md` becomes a page of the site, and a figure or a table is copied.
The pages and files keep their paths from the root of the repository, so that links between them stay unchanged.
"""

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[2]
GUIDE, TUTORIALS = ROOT / "examples" / "guide", ROOT / "examples" / "tutorials"
# A link or a picture of Markdown, without its anchor; addresses with a colon lead elsewhere.
LINK = re.compile(r"(\]\()([^)\s#:]+)(?=[)#\s])")
FENCE = re.compile(r"(^ *```.*?^ *```)", re.DOTALL | re.MULTILINE)


def on_files(files: Files, config: Any) -> Files:
    """Add what pages link to, and what those link to."""
    waiting = [Path(x.abs_src_path) for x in files if x.is_documentation_page() and x.abs_src_path]
    while waiting:
        page = waiting.pop()
        for target in targets(page):
            uri = site_path(target)
            if files.get_file_from_path(uri) is None:
                files.append(File.generated(config, uri, abs_src_path=str(target)))
                waiting += [target] if target.suffix == ".md" else []
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Turn links between files of the repository into links between pages of the site."""
    source = page.file.abs_src_path
    return markdown if source is None else rewritten(markdown, Path(source))


def targets(page: Path) -> list[Path]:
    """The files of the repository that a page links to."""
    texts = FENCE.split(page.read_text(encoding="utf-8"))[::2]
    files = (resolved(page, link) for text in texts for _, link in LINK.findall(text))
    return [target for target in files if target is not None]


def resolved(page: Path, link: str) -> Path | None:
    """The file that a link of this page leads to, if it is one of the repository."""
    target = (page.parent / link).resolve()
    return target if target.is_file() and target.is_relative_to(ROOT) else None


def site_path(target: Path) -> str:
    """Where a file of the repository is in the site: pages of the guide first, all others at their own paths."""
    if target == ROOT / "README.md":
        return "index.md"
    if target.is_relative_to(GUIDE):
        return target.relative_to(GUIDE).as_posix()
    if target.parent == TUTORIALS:
        return f"tutorials/{target.stem}.md"
    return target.relative_to(ROOT).as_posix()


def rewritten(text: str, page: Path) -> str:
    """The Markdown of a page, with links that are right in the site; code stays unchanged."""
    here = posixpath.dirname(site_path(page)) or "."

    def changed(match: re.Match[str]) -> str:
        target = resolved(page, match[2])
        return match[0] if target is None else match[1] + Path(posixpath.relpath(site_path(target), here)).as_posix()

    parts = FENCE.split(text)
    return "".join(part if i % 2 else LINK.sub(changed, part) for i, part in enumerate(parts))
