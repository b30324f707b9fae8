"""Log compaction as by Kafka's cleaner: `first_pass` finds keys, `retention` decides what stays, `second_pass` and `rewrite` write it."""
