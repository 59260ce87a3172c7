"""A stream's transform at its entrance, done from outside: rules of kind subject_transform."""
