"""Tables of text as Markdown and LaTeX, and parts of a page that can be unfolded."""

from dataclasses import dataclass

_LATEX = {
    "\\": r"\textbackslash{}",
    **{character: f"\\{character}" for character in "&%$#_{}"},
    "±": r"$\pm$",
    "−": "$-$",
    "×": r"$\times$",
    "–": "--",
    "’": "'",
    "`": "",  # marks code in Markdown
}


@dataclass(frozen=True)
class TextTable:
    """Rows in groups; each row has as many cells as the header."""

    header: tuple[str, ...]
    groups: list[list[tuple[str, ...]]]

    def without(self, column: str) -> "TextTable":
        """The table without a column."""
        return self.only(*(name for name in self.header if name != column))

    def only(self, *columns: str) -> "TextTable":
        """The table with these columns alone, in their order in the table."""
        places = [place for place, name in enumerate(self.header) if name in columns]

        def of(row: tuple[str, ...]) -> tuple[str, ...]:
            return tuple(row[place] for place in places)

        return TextTable(of(self.header), [[of(row) for row in g] for g in self.groups])

    def markdown(self) -> str:
        """The table in GitHub's Markdown."""
        rows = [row for group in self.groups for row in group]
        lines = [self.header, ("---",) * len(self.header), *rows]
        return "".join(f"| {' | '.join(line)} |\n" for line in lines)

    def latex(self, caption: str, label: str) -> str:
        """A LaTeX table as wide as the page; needs the packages booktabs and graphicx."""
        lines = [
            r"% \usepackage{booktabs,graphicx}",
            r"\begin{table}",
            r"\centering",
            rf"\caption{{{escaped(caption)}}}",
            rf"\label{{{label}}}",
            r"\resizebox{\textwidth}{!}{%",
            rf"\begin{{tabular}}{{{'l' * len(self.header)}}}",
            r"\toprule",
            _latex_row(self.header),
        ]
        for group in self.groups:
            lines += [r"\midrule", *map(_latex_row, group)]
        lines += [r"\bottomrule", r"\end{tabular}}", r"\end{table}"]
        return "\n".join(lines) + "\n"


def folded(summary: str, *parts: str) -> str:
    """A part of a page that is shown when the reader clicks on its summary.

    Works on GitHub and, with the extension `md_in_html`, on the documentation site.
    """
    body = "\n".join(parts)
    return f'<details markdown="1">\n<summary>{summary}</summary>\n\n{body}\n</details>\n'


def escaped(text: str) -> str:
    """The text with LaTeX's special characters escaped."""
    return "".join(_LATEX.get(character, character) for character in text)


def _latex_row(cells: tuple[str, ...]) -> str:
    return " & ".join(map(escaped, cells)) + r" \\"
