"""Coresets of models whose posteriors are known: how far from the data's posterior is theirs?"""
