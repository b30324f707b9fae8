"""Records of the topics that a cluster keeps for itself, and control records: Kafka's definitions of messages, read at run time."""
