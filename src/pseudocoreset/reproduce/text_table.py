"""A table of words, as Markdown and as LaTeX."""

from dataclasses import dataclass

_LATEX = {
    "\\": r"\textbackslash{}",
    **{character: f"\\{character}" for character in "&%$#_{}"},
    "±": r"$\pm$",
    "−": "$-$",
    "×": r"$\times$",
    "–": "--",
    "’": "'",
    "`": "",  # what is code in Markdown
}


@dataclass(frozen=True)
class TextTable:
    """Rows in groups; each row has as many cells as the header."""

    header: tuple[str, ...]
    groups: list[list[tuple[str, ...]]]

    def without(self, column: str) -> "TextTable":
        """The same, one column less."""
        place = self.header.index(column)

        def rest(row: tuple[str, ...]) -> tuple[str, ...]:
            return row[:place] + row[place + 1 :]

        return TextTable(rest(self.header), [[rest(row) for row in g] for g in self.groups])

    def markdown(self) -> str:
        """As GitHub shows it."""
        rows = [row for group in self.groups for row in group]
        lines = [self.header, ("---",) * len(self.header), *rows]
        return "".join(f"| {' | '.join(line)} |\n" for line in lines)

    def latex(self, caption: str, label: str) -> str:
        """A float as wide as the page, with the rules of the package booktabs."""
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


def escaped(text: str) -> str:
    """The text as LaTeX takes it."""
    return "".join(_LATEX.get(character, character) for character in text)


def _latex_row(cells: tuple[str, ...]) -> str:
    return " & ".join(map(escaped, cells)) + r" \\"
