"""Subjects of test: who a case can be played on."""
