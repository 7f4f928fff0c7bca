"""Experts: networks trained on the whole data, and their snapshots on disk."""

from pseudocoreset.experts.store import ExpertStore, StoreIdentity
from pseudocoreset.experts.train import ExpertOptions, train_experts

__all__ = ["ExpertOptions", "ExpertStore", "StoreIdentity", "train_experts"]
