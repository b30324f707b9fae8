"""What to say about a command that is not there: names that other tools have for ours."""

from collections.abc import Iterable
from difflib import get_close_matches

HINTS = {
    "What is there: kolumn SOURCE": "count describe info list ls offsets partitions show stat summary topics tree",
    "For records: kolumn cat SOURCE": "consume consumer dump get less more poll print read records scan view",
    "For the first records: kolumn cat -n 10 SOURCE": "first head limit peek sample take",
    "To follow a log: kolumn cat -f SOURCE": "follow stream tail watch",
    "To search records: kolumn cat --grep PATTERN SOURCE": "filter find grep search",
    'For a query: kolumn sql SOURCE "select * from orders limit 5"': "duckdb query select where",
    "For Parquet files: kolumn to-parquet SOURCE TARGET": "export extract parquet save to-csv to-json",
    "For a table: kolumn to-iceberg DIR catalog.namespace.table": "append iceberg",
    "For a table: kolumn to-delta DIR URI": "delta",
    "To compare two copies: kolumn diff A B": "cmp compare divergence",
    "To check every byte: kolumn verify SOURCE": "check crc fsck lint scrub validate",
    "For gaps, duplicates and what else needs attention: kolumn audit SOURCE": "duplicates gaps health",
    "From damaged copies to one sound log: kolumn recover SOURCE TARGET": "fix heal merge repair restore salvage",
    "Without some keys: kolumn erase --keys FILE SOURCE TARGET": "delete drop erase-person forget gdpr purge redact remove rm",
    "Without old records: kolumn apply-retention --retention-ms 7d SOURCE TARGET": "expire prune retention trim truncate",
    "For committed offsets and lag: kolumn groups SOURCE": "committed consumer-groups consumers lag members",
    "For batches: kolumn inspect SOURCE": "batches dump-log headers segments",
    "For what became of a key: kolumn history --key KEY SOURCE": "blame deleted key trace who",
    "For the latest record of each key: kolumn latest SOURCE": "current snapshot state table",
    "For open transactions: kolumn transactions SOURCE": "hanging open-transactions transaction tx txn",
    "For schemas: kolumn schemas SOURCE": "registry schema subjects",
    "For the size in each format: kolumn space SOURCE": "du size usage",
    "For a page with pictures: kolumn report SOURCE": "chart html page plot",
    "For another format or codec: kolumn convert SOURCE TARGET": "compress downgrade recompress transcode upgrade",
    "For the connector: kolumn jar": "spark",
    "For what a read would do: kolumn explain SOURCE": "plan",
    "For the version: kolumn --version": "version",
    "For the commands: kolumn -h; for one of them: kolumn COMMAND -h": "commands help man",
    "Segments are written by kolumn.write in Python": "import ingest load produce producer write",
}
"""What to run instead, and the names that people try."""


def no_such_command(word: str, commands: Iterable[str]) -> str:
    """What to say about a first word that is neither a command nor a path."""
    hint = next((hint for hint, words in HINTS.items() if word.lower() in words.split()), None)
    if hint is not None:
        return f"no such command {word!r}. {hint}"
    near = get_close_matches(word, commands, 1, 0.7)
    advice = f"Did you mean {near[0]!r}?" if near else "`kolumn -h` lists the commands"
    return f"no such command, and no such file or directory: {word!r}. {advice}"
