"""Whether native mirrors and sources make progress: rules of kind `watch`, and `nats-bridge watch`.

`link` finds them in the configurations of an account's streams; `looking` compares the tails of source and target, not
what the server says of its lag; `progress` decides since when one is stalled; `reasons` names the likely reason with
its remedy; `watch` does that for a whole account, at a bounded rate. The command and `run` share all of it.
"""
