"""The campaign directory: its schema, how it is written, and how it is verified."""
