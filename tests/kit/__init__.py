"""Test kit that shares no code with Kolumn: a writer, a reader, damage, and the corpus."""
