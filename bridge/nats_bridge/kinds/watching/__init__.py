"""Whether native mirrors and sources make progress: rules of kind `watch`, and `nats-bridge watch`.

`link` finds them in the configurations of an account's streams; `looking` compares the tails of source and target, not
what the server says of its lag; `reasons` names the likely reason of a stall with its remedy; `watch` decides for a
whole account, at a bounded rate, since when which link is stalled. The command and `run` share all of it.
"""
