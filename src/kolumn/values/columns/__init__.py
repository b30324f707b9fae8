"""Payloads of record batches become typed columns: what a call asks for, what decodes it, and the stage that does it."""
