"""Log compaction like Kafka's cleaner: `latest` finds each key's last offset, `retention` decides what stays, `rewrite` writes it."""
