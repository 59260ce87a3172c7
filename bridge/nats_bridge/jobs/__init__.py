"""Jobs of commands: hand a rule over, put dead letters back, watch native copies."""
