"""A plan for moving consumers to the copy of their stream: `nats-bridge failover`.

`account` is what the source's servers say, also as saved before; `copied_stream` finds what is copied; `filters` are a
consumer's filters in the copy; `positions` finds where it begins there; `way_back` is how the copy's own messages
return; `plan` puts it together.
"""
