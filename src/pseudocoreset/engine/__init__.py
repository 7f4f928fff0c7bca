"""What is neither method nor data: devices, repeated steps, files, progress."""
