"""How many damaged segments the fuzz tests make: KOLUMN_FUZZ_MUTANTS."""

import os

MUTANTS = int(os.environ.get("KOLUMN_FUZZ_MUTANTS", "600"))
