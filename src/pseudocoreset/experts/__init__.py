"""Networks trained on the whole data, and their snapshots."""

from pseudocoreset.experts.store import ExpertStore, StoreIdentity
from pseudocoreset.experts.train import ExpertOptions, train_experts

__all__ = ["ExpertOptions", "ExpertStore", "StoreIdentity", "train_experts"]
