"""The sidecar: does outside the server what newer servers do natively."""
