"""Schemas of typed values, and where they come from: dicts, files, registries, the topic `_schemas`."""
