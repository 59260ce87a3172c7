"""Whether native mirrors and sources make progress: `nats-bridge watch`.

`link` finds them in the configurations of an account's streams; `looking` compares the tails of source and target, not
what the server says of its lag; `progress` decides since when one is stalled; `reasons` names the likely reason with
its remedy.
"""
