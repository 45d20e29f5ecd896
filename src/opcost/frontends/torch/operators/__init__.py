"""What each operator makes, and what it is, found out without the user's data."""
