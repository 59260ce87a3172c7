"""Proposing rules: what a server does natively, what a native configuration wants beyond that, what streams suggest.

Nothing here changes anything on a server: `landscape` reads, everything else is pure. `nats-bridge init` is the way in.
"""
