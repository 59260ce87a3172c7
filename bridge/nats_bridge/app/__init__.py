"""The process: a configuration's connections and rules from start to drain, and reloads."""
