"""The randomised run: a workload, faults, a history, and an offline judge of what every kind of rule promises.

Theory of operation: `run` starts servers (`surroundings`), sidecars as processes that reach them through wires which
can be cut (`sidecars`, `wires`), a `workload` with numbered messages, and a `nemesis` that carries out `faults`, which
are data derived from a seed. All write to one `history`. At the end the streams are read, and `checker` judges from
the history alone what was lost, duplicated, reordered or changed, against the promise of each rule.

The bridge is a black box here: a command line, signals, and answers over HTTP.
"""
