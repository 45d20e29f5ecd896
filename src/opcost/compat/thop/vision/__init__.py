"""thop.vision: the rules that custom rules are built from."""
