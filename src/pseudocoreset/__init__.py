"""Bayesian pseudocoresets: a large labelled data set as a handful of synthetic images."""
