"""A source (a model object, a file, a name) becomes a Graph; one front end per framework."""
