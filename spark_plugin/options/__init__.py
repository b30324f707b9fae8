"""What Spark hands over as text, checked."""
