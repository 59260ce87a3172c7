"""What all kinds of rules share: their life, leadership among replicas, counters, loop checks."""
