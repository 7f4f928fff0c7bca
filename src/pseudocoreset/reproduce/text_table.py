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
}


@dataclass(frozen=True)
class TextTable:
    """Rows in groups; each row has as many cells as the header."""

    header: tuple[str, ...]
    groups: list[list[tuple[str, ...]]]

    def markdown(self) -> str:
        """As GitHub shows it."""
        rows = [row for group in self.groups for row in group]
        lines = [self.header, ("---",) * len(self.header), *rows]
        return "".join(f"| {' | '.join(line)} |\n" for line in lines)

    def latex(self, caption: str, label: str) -> str:
        """A float with the rules of the package booktabs."""
        lines = [
            r"% \usepackage{booktabs}",
            r"\begin{table}",
            r"\centering",
            r"\small",
            rf"\caption{{{escaped(caption)}}}",
            rf"\label{{{label}}}",
            rf"\begin{{tabular}}{{{'l' * len(self.header)}}}",
            r"\toprule",
            _latex_row(self.header),
        ]
        for group in self.groups:
            lines += [r"\midrule", *map(_latex_row, group)]
        lines += [r"\bottomrule", r"\end{tabular}", r"\end{table}"]
        return "\n".join(lines) + "\n"


def escaped(text: str) -> str:
    """The text as LaTeX takes it."""
    return "".join(_LATEX.get(character, character) for character in text)


def _latex_row(cells: tuple[str, ...]) -> str:
    return " & ".join(map(escaped, cells)) + r" \\"
