"""What in the logs of topic-partitions contradicts what brokers and producers do."""
