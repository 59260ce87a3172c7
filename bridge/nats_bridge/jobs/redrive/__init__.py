"""Dead letters back on their original subject, each exactly once: `nats-bridge redrive`.

`letter` reads what the rules wrote; `destinations` knows which stream takes it; `journal` remembers what was redriven;
`redriving` publishes, window after window; `job` plans and does all of it.
"""
