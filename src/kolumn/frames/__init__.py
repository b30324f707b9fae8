"""Topics in the libraries for data frames and SQL."""
