"""One callback a file, named after it."""
