"""Values that are text: JSON, and separated fields."""
