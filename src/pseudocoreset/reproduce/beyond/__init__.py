"""The best coresets for their size, with controls of the same storage and published figures."""
