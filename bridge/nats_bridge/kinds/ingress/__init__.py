"""Rules of kind subject_transform: a stream's ingress transform from outside."""
