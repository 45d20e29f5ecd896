USES_VALUES = frozenset()
