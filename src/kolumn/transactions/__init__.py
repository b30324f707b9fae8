"""Outcomes of transactions, and the rows that a reader of committed records keeps."""
