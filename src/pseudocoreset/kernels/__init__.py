"""Faster kernels that compute the same as several operations of PyTorch.

Triton compiles them in a second or two; PyTorch's compiler takes tens of seconds.
"""
