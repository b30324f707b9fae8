"""Log compaction as by Kafka's cleaner: `latest` finds keys (pass one), `retention` decides what stays, `rewrite` writes it (pass two)."""
