"""The calls of other counters, answered by opcost: one module per peer, none of which imports the peer."""
