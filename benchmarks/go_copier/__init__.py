"""The comparison in Go: `main.go` is a copier with nats.go, which `build` makes."""
