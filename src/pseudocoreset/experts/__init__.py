"""Networks trained on the whole data, and their snapshots."""

from pseudocoreset.experts.store import ExpertStore, StoreIdentity
from pseudocoreset.experts.train import ExpertSettings, train_experts

__all__ = ["ExpertSettings", "ExpertStore", "StoreIdentity", "train_experts"]
