"""Plain data and its arithmetic; imports nothing but the standard library and, for files, msgspec."""
