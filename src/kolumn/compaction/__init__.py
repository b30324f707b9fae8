"""Log compaction as Kafka's cleaner does it: `latest` finds the last offset of each key, `retention` what stays, `rewrite` writes it."""
