"""A log is written anew: in another format, compacted as by Kafka's cleaner, or without what is too old."""
