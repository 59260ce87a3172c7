"""What a command does on servers and ends: hand a rule over, put dead letters back, watch native copies."""
