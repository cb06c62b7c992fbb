"""What stands in public: derived from evidence that verifies, never typed by hand."""
