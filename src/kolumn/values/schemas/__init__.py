"""Schemas of typed values, and collections of them: dicts, files, registries."""
