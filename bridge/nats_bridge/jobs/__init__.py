"""Jobs of commands: hand a rule over, put dead letters back, find positions in a copy, read facts, test rules."""
