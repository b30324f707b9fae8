"""Options arrive from Spark as text; they are parsed and checked here."""
