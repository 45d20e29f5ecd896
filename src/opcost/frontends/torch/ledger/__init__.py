"""What is written down of a run: the values with their memory and known contents, and the operators that ran."""
