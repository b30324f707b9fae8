"""The Python side of Kolumn's connector in `spark_plugin/jvm/`: it plans on the driver and decodes in tasks, in a process of its own."""
