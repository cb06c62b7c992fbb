"""What is sent, in what order."""
