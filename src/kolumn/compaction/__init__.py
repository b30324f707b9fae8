"""Log compaction as by Kafka's cleaner: `survey` finds keys, `retention` decides what stays, `sparing` and `rewrite` write it."""
