"""From plain data to plain data: pricing, memory, queries."""
