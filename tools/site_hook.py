"""A hook for `mkdocs build`: the README as home, and files outside docs/.

Pages link to `../results/…` and to code, so that they work on GitHub as well. The linked files are
copied into the site, and the links are changed to the copies. Lines do not break around ± and /
between numbers.
"""

import re
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parent.parent
HOME = "index.md"
OUTSIDE = re.compile(r"\]\(\.\./([^)#]+)")


def on_files(files: Files, config: Any) -> Files:
    pages = [file for file in files if file.is_documentation_page()]
    files.append(File.generated(config, HOME, content=home()))
    linked = {path for page in pages for path in OUTSIDE.findall(page.content_string)}
    linked |= set(re.findall(r"\]\(((?:results/|CONTRIBUTING)[^)#]*)", home()))
    for path in sorted(linked):
        if not (ROOT / path).is_file():
            raise PluginError(f"a page links to {path}, which is no file")
        files.append(File.generated(config, path, abs_src_path=str(ROOT / path)))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    linked = OUTSIDE.sub(r"](\1", markdown).replace("](docs/", "](")
    return re.sub(r"(?<=\d) ([±/]) (?=\d)", "\N{NO-BREAK SPACE}\\1\N{NO-BREAK SPACE}", linked)


def home() -> str:
    return (ROOT / "README.md").read_text(encoding="utf-8")
