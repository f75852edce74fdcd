"""Found only by those whose PYTHONPATH leads here."""

WORD = "found by PYTHONPATH"
