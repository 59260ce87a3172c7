"""A deterministic simulation: the unmodified sidecar in virtual time, against a simulated server, with drawn faults.

Everything that happens follows from one seed, so that a run can be repeated exactly: `make simulate SEED=…`.

| module | what it does |
|---|---|
| `world` | virtual time, and what happens next |
| `sidecar_loop` | the event loop of one simulated process, which can be paused, and killed after any callback |
| `network` | connections in memory, which are slow, held, cut and half open |
| `server` | the client protocol; subscriptions, and who receives what |
| `api` | the JetStream API that the bridge uses |
| `streams` | streams with their stores, on the suite's model; what a kill or a power cut leaves of them |
| `consumers` | push consumers with flow control, heartbeats and acknowledgements |
| `determinism` | clocks, chances and names of the process under simulation, from the seed |
| `scenario` | one seed: servers, sidecars, producers, faults, and the history that the chaos judge reads |
| `faults` | what goes wrong, and when |
| `shrinking` | fewer faults that still break the same promise |
"""
