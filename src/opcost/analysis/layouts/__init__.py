"""What one rank of a layout does and holds, from recordings of few layouts with few blocks."""
