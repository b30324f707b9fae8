"""Below the stages: addresses, checksums, compiled code and C libraries."""
