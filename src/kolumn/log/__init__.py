"""The log by its headers: which files and bytes a read needs, and where they are cut into chunks; batches, transactions and index files."""
