"""AUROC by counting pairs, and FPR95 by trying every threshold."""


def auroc(inside, outside):
    """Pairs in which the outer point scores higher; ties count half."""
    won = sum(1.0 if b > a else 0.5 if b == a else 0.0 for a in inside for b in outside)
    return won / (len(inside) * len(outside))


def fpr95(inside, outside):
    """The share of outer points accepted at the lowest threshold that accepts 95 % of the inner."""
    for threshold in sorted(inside):
        if 100 * sum(a <= threshold for a in inside) >= 95 * len(inside):
            return sum(b <= threshold for b in outside) / len(outside)
    raise AssertionError
