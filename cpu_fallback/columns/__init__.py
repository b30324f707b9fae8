"""Stage 5 on the CPU: Arrow columns."""
