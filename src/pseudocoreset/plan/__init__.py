"""What a command would take, from a few steps of it."""
