"""Compare coresets with all points for small networks, by HMC."""

from pseudocoreset.reproduce.small import classification, regression

STUDIES = {study.name: study for study in (regression.STUDY, classification.STUDY)}
"""The studies by the name that `reproduce` calls them."""
