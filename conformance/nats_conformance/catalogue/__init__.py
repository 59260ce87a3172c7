"""The catalogue: cases as data, by clause.

`case` defines a case and the form of a case file, and `reading` reads cases from the YAML files in this folder's
subfolders.
"""
