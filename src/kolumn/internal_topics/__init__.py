"""What a cluster's own topics say about its groups and its transactions, read from disk."""
