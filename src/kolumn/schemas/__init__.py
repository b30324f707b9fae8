"""Where the schemas of keys and values come from, and how they are looked up."""
