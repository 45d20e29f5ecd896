"""The model to count: recognised, taken out of its wrapping or made without weights, its lazy parts settled, its inputs made."""
