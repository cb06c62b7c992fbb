"""Pure arithmetic and judgement: rates, identity, gates. No clock, no socket, no file."""
