"""`python -m tests.follow`: the differences of newer server versions, and whether the engine follows them.

`newer` finds the versions, `playing` runs the catalogue, the random comparisons and the live tests on one of them,
`findings` reads their results, `report` writes them. docs/extending.md says how a report becomes a dialect.
"""
