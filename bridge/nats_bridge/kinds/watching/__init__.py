"""Whether native mirrors and sources make progress: rules of kind `watch`, and `nats-bridge watch`.

`link` finds them in the stream configurations of an account. `looking` compares the ends of source and target, instead
of trusting the lag that the server reports. `reasons` finds the likely reason of a stall and its remedy. `watch`
decides for a whole account, at a bounded rate, which links are stalled and since when. The command and `run` share all
of it.
"""
