"""How long a counted model would take on a device, from operators that were timed on it."""
