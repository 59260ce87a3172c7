"""The history of a stream through a rule of the bridge's configuration, into the rule's target or into files."""
