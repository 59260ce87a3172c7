"""A deterministic simulation: the unmodified sidecar in virtual time, against simulated servers, with drawn faults.

Everything in a run follows from one seed, so you can repeat it exactly: `make simulate SEED=…`.

Begin to read with `scenario`. It uses the simulated servers (`server`, `api`, `streams`, `consumers`), the sidecar's
processes (`process`, `sidecar_loop`, `determinism`), and the `network` and the `world` around them. `faults` draws the
faults, `fault_timing` lets them begin and end, `fault_actions` carries them out. `judging` notes what happens.
"""
