"""The session and its workers: Java, Python, and the GPU of a task."""
