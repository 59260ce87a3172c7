"""The catalogue: cases as data, by clause.

`case` defines a case, `reading` reads cases from the YAML files in this folder's subfolders, and `document` is their
schema.
"""
