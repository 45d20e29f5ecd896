"""One run of a model, seen operator by operator, from the first module call to the graph."""
