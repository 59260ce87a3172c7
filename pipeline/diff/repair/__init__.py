"""Making the right side of a comparison equal to the left: what would be done, and doing it.

`steps` decides what each finding asks for; `copies` makes the messages; `applying` publishes and deletes; `job` goes
from a comparison to a `Repair`, which `report` shows.
"""
