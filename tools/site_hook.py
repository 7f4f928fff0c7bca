"""A hook for `mkdocs build`: the README as home, and files outside docs/.

Pages link to `../results/…` and to code, so that they work on GitHub as well. The linked files are
copied into the site, and the links are changed to the copies. A picture that is a paragraph opens
in full size when it is clicked. Lines do not break around ± and / between numbers, and before %.
"""

import re
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parent.parent
HOME = "index.md"
ALONE = "---\nhide: [navigation]\n---\n\n"
"""The first page has no other pages beside it."""
OUTSIDE = re.compile(r"\]\(\.\./([^)#]+)")
OF_HOME = re.compile(r"(?:\]\(|src=\")((?:results/|CONTRIBUTING)[^)\"#]*)")
WORD = re.compile(r"<code>([^<\s]{1,24})</code>")
"""Short code of one word, which css/wrap.css keeps on one line."""
PICTURE = re.compile(r"^!\[[^\]]*\]\(([^)]+)\)$", re.MULTILINE)


def on_files(files: Files, config: Any) -> Files:
    pages = [file for file in files if file.is_documentation_page()]
    files.append(File.generated(config, HOME, content=ALONE + home()))
    linked = {path for page in pages for path in OUTSIDE.findall(page.content_string)}
    linked |= set(OF_HOME.findall(home()))
    for path in sorted(linked):
        if not (ROOT / path).is_file():
            raise PluginError(f"a page links to {path}, which is no file")
        files.append(File.generated(config, path, abs_src_path=str(ROOT / path)))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    linked = OUTSIDE.sub(r"](\1", markdown).replace("](docs/", "](")
    opened = PICTURE.sub(r"[\g<0>](\1)", linked)
    together = re.sub(r"(?<=\d) %", "\N{NO-BREAK SPACE}%", opened)
    return re.sub(r"(?<=\d) ([±/]) (?=\d)", "\N{NO-BREAK SPACE}\\1\N{NO-BREAK SPACE}", together)


def on_page_content(html: str, **_: Any) -> str:
    return WORD.sub(r'<code class="word">\1</code>', html)


def home() -> str:
    return (ROOT / "README.md").read_text(encoding="utf-8")
