"""What names and manifests of Redpanda tell of its segments."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Raft:
    """What is known of a segment of Redpanda besides its bytes.

    Attributes
    ----------
    term : int
        Term of the leader that wrote it, which is the leader epoch of its records.
    delta, delta_end : int, optional
        How many raw offsets before its first batch, and before what follows its last one, are none of consumers, according to the manifest
        of a bucket.
    aborted : str, optional
        Name of the file that lists its aborted transactions.
    """

    term: int
    delta: int | None = None
    delta_end: int | None = None
    aborted: str | None = None
