"""Log compaction as by Kafka's cleaner, and retention by age."""
