"""The connector in Java, `kolumn/*.java`, and how its jar is built. Spark finds the class ``kolumn.DefaultSource`` in it."""
