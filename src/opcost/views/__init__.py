"""A report as text: each view builds plain data first and writes it second."""
