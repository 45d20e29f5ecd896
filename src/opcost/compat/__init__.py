"""The calls of other counters, answered by opcost: one package per peer, none of which imports the peer."""
