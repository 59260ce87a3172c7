"""The sidecar: it does outside of the server what newer servers do inside."""
