"""What formats whose files hold graphs of named values share: the graph as data, the walk over it, handlers of operators."""

MOST_CONTENT = 4096  # Elements of a tensor whose content is read: shapes, axes, scales, and tables of such
MOST_AXES = 64
MOST_DEPTH = 32  # Graphs inside graphs
