r"""The paper's figures as we store them, against its tables, copied as they are printed."""

import re

import pytest

from pseudocoreset.reproduce import paper
from pseudocoreset.reproduce.paper import Figure, Scores

TABLE2 = r"""
\multirow{2}{*}{Random}      & Acc ($\uparrow$) & 4.82$\spm{0.47}$ & 18.0$\spm{0.31}$ & 35.1$\spm{0.23}$ & 1.90$\spm{0.08}$    & 7.21$\spm{0.04}$   & 19.15$\spm{0.12}$     \\
                             & NLL ($\downarrow$) & 5.55$\spm{0.07}$ & 4.57$\spm{0.01}$ & 3.35$\spm{0.01}$ & 6.18$\spm{0.04}$    & 5.77$\spm{0.02}$   & 4.88$\spm{0.01}$     \\
\multirow{2}{*}{BPC-fKL}     & Acc ($\uparrow$) & 14.7$\spm{0.16}$ & 28.1$\spm{0.60}$ & 37.1$\spm{0.33}$ & 3.98$\spm{0.13}$    & 11.4$\spm{0.45}$   &  22.18$\spm{0.32}$    \\
                             & NLL ($\downarrow$) & 4.17$\spm{0.05}$ & 3.53$\spm{0.05}$ & 3.28$\spm{0.24}$ & 5.63$\spm{0.03}$    & 5.08$\spm{0.05}$   &  4.65$\spm{0.02}$    \\ \midrule
\multirow{2}{*}{FBPC (Ours)} & Acc ($\uparrow$) & \textbf{21.0$\spm{0.76}$} & \textbf{39.7$\spm{0.31}$} & \textbf{44.47$\spm{0.35}$}  &  \textbf{10.14$\spm{0.68}$} & \textbf{19.42$\spm{0.51}$} & \textbf{26.43$\spm{0.31}$}  \\
                             & NLL ($\downarrow$) & \textbf{3.76$\spm{0.11}$} & \textbf{2.67$\spm{0.02}$} &\textbf{2.63$\spm{0.01} $}  &  \textbf{4.69$\spm{0.05}$}  & \textbf{4.14$\spm{0.02}$} & \textbf{4.30$\spm{0.05}$} \\ \bottomrule
"""  # noqa: E501
CORRUPTIONS = r"""
\multirow{2}{*}{BPC-fKL} & Acc ($\uparrow$)       & 33.5 & 34   & 35.9 & 25.1 & 33.7 & 39.1 & 32.7 & 38.3 & 28.9 & 41.2 & 34.3 \\
                         & Degradation ($\downarrow$) & 40.3 & 39.4 & 36   & 55.2 & 39.9 & 30.3 & 41.6 & 31.6 & 48.4 & 26.5 & 38.9 \\ \midrule
\multirow{2}{*}{FBPC}    & Acc ($\uparrow$)         & 48.9 & 46.4 & 47.6 & 41.7 & 44.0 & 52.0 & 44.3 & 51.0 & 47.1 & 52.3 & \textbf{47.5} \\
                         & Degradation ($\downarrow$) & 21.5 & 25.7 & 23.7 & 33.0 & 29.3 & 16.4 & 28.8 & 18.1 & 24.4 & 16.1 & \textbf{23.7} \\ \bottomrule
"""  # noqa: E501
CROSS = r"""
\multirow{2}{*}{1}  & Acc ($\uparrow$) & 35.71$\spm{0.90}$ & 27.7$\spm{0.96}$ & 22.46$\spm{0.12}$ & 26.33$\spm{0.88}$ & 21.05$\spm{0.43}$ \\
                    & NLL ($\downarrow$) & 3.44$\spm{0.07}$  & 2.87$\spm{0.13}$  & 3.06$\spm{0.02}$ & 5.38$\spm{0.74}$  & 3.13$\spm{0.60}$  \\ \midrule
\multirow{2}{*}{10} & Acc ($\uparrow$) & 62.53$\spm{0.34}$ & 47.51$\spm{1.73}$ & 35.48$\spm{1.22}$ & 47.87$\spm{1.18}$ & 32.27$\spm{0.78}$ \\
                    & NLL ($\downarrow$) & 1.31$\spm{0.01}$  & 1.82$\spm{0.02}$  & 2.41$\spm{0.01}$  & 3.72$\spm{0.09}$  & 2.96$\spm{0.04}$ \\ \midrule
\multirow{2}{*}{50} & Acc ($\uparrow$) & 71.20$\spm{0.36}$ & 62.02$\spm{1.55}$ & 47.97$\spm{3.37}$ & 58.24$\spm{1.63}$ & 52.42$\spm{1.30}$ \\
                    & NLL ($\downarrow$) & 1.03$\spm{0.00}$  & 1.41$\spm{0.05}$  & 2.10$\spm{0.10}$  & 3.03$\spm{0.26}$  & 2.08$\spm{0.07}$  \\ \bottomrule
"""  # noqa: E501
MEMORY = r"""
        FBPC & 0.02 & 0.32 & 2.56 \\
        BPC-fKL & 0.11 & 3.17 & 12.18 \\ \bottomrule
"""
MEMORY_BY_SIZE = r"""
        FBPC & 0.04 & 0.32 & 1.59 \\
        BPC-fKL & 0.41 & 3.17 & 15.59 \\ \bottomrule
"""
SECONDS = r"""
        BPC-fKL & $1.04\spm{0.10}$ & $1.37\spm{0.13}$ & $2.59\spm{0.86}$ \\
        FBPC & $1.5\spm{0.15}$ & $3.29\spm{0.51}$ & $8.38\spm{0.48}$ \\ \bottomrule
"""
METHODS = {"Random": "random", "BPC-fKL": "bpc-fkl", "FBPC": "fbpc", "FBPC (Ours)": "fbpc"}
SIZES = (1, 10, 50)
NETS = ("convnet", "resnet18", "resnet34", "vgg11", "alexnet")


def rows_of(table):
    """Each row's first words, those of the row before where it has none; and its numbers."""
    head, rows = "", []
    for line in table.strip().splitlines():
        first, *cells = line.split(r"\\")[0].split("&")
        named = re.search(r"\{([^{}]*)\}\s*$", first)
        head = named[1] if named else first.strip() or head
        numbers = [[float(n) for n in re.findall(r"\d+\.?\d*", cell)] for cell in cells]
        rows.append((head, [each for each in numbers if each]))
    return rows


def scores_of(table):
    """For each two rows, their first words and the scores in their columns."""
    rows = rows_of(table)
    for (head, accuracies), (_, nlls) in zip(rows[::2], rows[1::2], strict=True):
        pairs = zip(accuracies, nlls, strict=True)
        yield head, [Scores(Figure(*a), Figure(*b)) for a, b in pairs]


def test_table2_is_the_papers():
    printed = {}
    for head, scores in scores_of(TABLE2):
        places = [(data, ipc) for data in ("cifar100", "tiny-imagenet") for ipc in SIZES]
        for (data, ipc), each in zip(places, scores, strict=True):
            printed[data, METHODS[head], ipc] = each
    assert len(printed) == 18
    assert printed == paper.TABLE2


def test_scores_across_architectures_are_the_papers():
    printed = {
        (int(head), net): each
        for head, scores in scores_of(CROSS)
        for net, each in zip(NETS, scores, strict=True)
    }
    assert printed == paper.CROSS_ARCHITECTURE


RESNET18 = r"""
Acc ($\uparrow$) & 50.00    & 54.90              \\
NLL ($\downarrow$) & 1.75     & 1.56               \\ \bottomrule
"""


def test_scores_of_resnet18_are_the_papers():
    (_, accuracies), (_, nlls) = rows_of(RESNET18)
    for made_for, (accuracy,), (nll,) in zip(
        (("resnet18",), ("resnet18", "convnet")), accuracies, nlls, strict=True
    ):
        assert paper.RESNET18[made_for, "resnet18"] == (accuracy, nll)


def test_corruptions_are_the_papers_and_degradation_is_of_table1s_accuracy():
    rows = rows_of(CORRUPTIONS)
    for (head, accuracies), (_, losses) in zip(rows[::2], rows[1::2], strict=True):
        method = METHODS[head]
        stored = [*paper.CORRUPTIONS[method].values(), paper.CORRUPTIONS_MEAN[method]]
        assert [[each.accuracy] for each in stored] == accuracies
        assert [[each.degradation] for each in stored] == losses
        clean = paper.TABLE1[method, 10].accuracy.mean
        for each in stored:
            assert 100 * (1 - each.accuracy / clean) == pytest.approx(each.degradation, abs=0.3)


def test_costs_are_the_papers():
    for table, stored, columns in (
        (MEMORY, paper.MEMORY_BY_NET, ("lenet", "convnet", "resnet18")),
        (MEMORY_BY_SIZE, paper.MEMORY_BY_SIZE, SIZES),
    ):
        printed = {
            (METHODS[head], column): value
            for head, cells in rows_of(table)
            for column, (value,) in zip(columns, cells, strict=True)
        }
        assert printed == stored
    assert {
        (METHODS[head], ipc): Figure(*cell)
        for head, cells in rows_of(SECONDS)
        for ipc, cell in zip(SIZES, cells, strict=True)
    } == paper.SECONDS
