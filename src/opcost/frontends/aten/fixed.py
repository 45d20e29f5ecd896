"""Operators that mean the same in every call: a kind with fixed attributes.

`operators.json` lists them; a name without a library belongs to aten, and `reads` names the arguments that are inputs where
they do not come in the order of the kind. Views proper are found by their schema. Under the kind `view` stand those that torch
declares as if they made something new, memory that is handed out but not written (`empty`; what fills it counts), and orders
that leave data alone: `set_` and `resize_` change which memory a tensor looks at, not what lies in it.
"""

from __future__ import annotations

from opcost.core.parsing import packaged_table
from opcost.frontends.aten.call import Constant, on

for _entry in packaged_table(__package__, "operators.json"):
    on(*_entry.pop("ops"))(Constant(_entry.pop("kind"), tuple(_entry.pop("reads", ())), _entry))
