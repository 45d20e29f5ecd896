"""PyTorch's operators in opcost's words: what a call computes, and on which tensors. No framework is imported here.

Each file holds one family and registers its handlers by operator name; in-place forms, `out=` overloads, `_foreach_`
lists, `_copy` forms and views are recognised by name and schema, so they are not listed one by one. The families are
imported here for their entries in the table.
"""

from opcost.frontends.aten import attention, contraction, elementwise, layers, libraries, movement  # noqa: F401
