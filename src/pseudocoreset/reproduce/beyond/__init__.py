"""The best coresets for their size, beside controls of the same storage and published figures."""
