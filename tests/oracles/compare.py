"""Comparisons of predictions by plain loops over points, classes and samples."""

from math import exp, log


def mean_probabilities(log_samples, point):
    """The mean over samples of the probabilities at a point, class by class."""
    samples, _, classes = log_samples.shape
    return [
        sum(exp(float(log_samples[s, point, k])) for s in range(samples)) / samples
        for k in range(classes)
    ]


def most_probable(probabilities):
    return max(range(len(probabilities)), key=lambda k: probabilities[k])


def comparison(a, b, labels):
    """Agreement, total variation, KL, agreement where b errs: of log-probabilities s×n×k."""
    points = a.shape[1]
    agreeing, apart, divergence, errors, agreeing_errors = 0, 0.0, 0.0, 0, 0
    for n in range(points):
        p, q = mean_probabilities(a, n), mean_probabilities(b, n)
        same = most_probable(p) == most_probable(q)
        agreeing += same
        apart += sum(abs(x - y) for x, y in zip(p, q, strict=True)) / 2
        divergence += sum(x * log(x / y) for x, y in zip(p, q, strict=True))
        if most_probable(q) != int(labels[n]):
            errors += 1
            agreeing_errors += same
    return {
        "agreement": agreeing / points,
        "total_variation": apart / points,
        "kl": divergence / points,
        "agreement_on_errors": agreeing_errors / errors,
    }


def mutual_information(log_samples):
    """H[mean p] − mean H[p], mean over points."""
    samples, points, classes = log_samples.shape
    total = 0.0
    for n in range(points):
        p = mean_probabilities(log_samples, n)
        inner = 0.0
        for s in range(samples):
            row = [exp(float(log_samples[s, n, k])) for k in range(classes)]
            inner -= sum(x * log(x) for x in row) / samples
        total += -sum(x * log(x) for x in p) - inner
    return total / points


def variance(values):
    mean = sum(values) / len(values)
    return sum((value - mean) ** 2 for value in values) / len(values)


def variance_ratio(a, b):
    """The geometric mean over points of the summed variances' ratio."""
    logs = []
    for n in range(a.shape[1]):
        one, other = (
            sum(variance(each[:, n, k].tolist()) for k in range(each.shape[2])) for each in (a, b)
        )
        logs.append(log(one / other))
    return exp(sum(logs) / len(logs))


def between_chains(values, chains):
    """1 − the variance within chains / the variance of all samples, summed over all else."""
    samples, points, columns = values.shape
    each = samples // chains
    within = total = 0.0
    for n in range(points):
        for k in range(columns):
            line = values[:, n, k].tolist()
            total += variance(line)
            parts = [line[c * each : (c + 1) * each] for c in range(chains)]
            within += sum(map(variance, parts)) / chains
    return 1 - within / total
