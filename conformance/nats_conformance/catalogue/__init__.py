"""The catalogue: cases as data, by clause.

``case`` says what a case is, ``reading`` makes cases of the YAML files in this folder's subfolders, ``document`` is
their schema.
"""
