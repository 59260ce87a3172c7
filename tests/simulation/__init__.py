"""A deterministic simulation: the unmodified sidecar in virtual time, against simulated servers, with drawn faults.

Everything in a run follows from one seed, so you can repeat it exactly: `make simulate SEED=…`.

| module | what it does |
|---|---|
| `world` | virtual time, and planned events |
| `sidecar_loop` | the event loop of one simulated process, which can be paused, and killed after any callback |
| `network` | connections in memory, which are slow, held, cut and half open |
| `server` | the client protocol, and subscriptions |
| `api` | the JetStream API that the bridge uses |
| `streams` | streams with their stores, on the suite's model, and the effects of kills and power cuts |
| `consumers` | push consumers with flow control, heartbeats and acknowledgements |
| `determinism` | clocks, random numbers, names and limits of the simulated process, from the seed |
| `scenario` | one seed: servers, sidecars, producers, and the history that the chaos judge reads |
| `faults` | the faults of a seed, with their times |
| `shrinking` | fewer faults that still break the same promise |
| `defects` | known defects, put back to see which seed finds them |
"""
