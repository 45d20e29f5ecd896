"""What a compiler as `torch.compile` makes of the operators of a report: which of them run as one kernel, and what that moves."""
