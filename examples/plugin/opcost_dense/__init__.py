"""A plug-in for opcost: each module of this package is one part."""
