"""`nats-bridge init`: the rules for a native configuration, next to a server that does not do all of it.

`native_rules` decides what a rule has to do, `rule_text` writes YAML, `command` reads the configuration and prints.
"""
