"""From plain data to plain data: costs, memory, queries."""
