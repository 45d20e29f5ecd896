"""The command line: one thin file per command that parses, calls the library, prints, and sets the exit code."""
