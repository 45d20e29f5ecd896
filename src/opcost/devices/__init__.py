"""How fast a device really is: operators that were timed on it, as files. What its maker prints is in `core.devices`."""
