"""Random streams and messages: `messages`, `transforms` and `configs`, for tests that compare two implementations."""
