"""The calls of other counters: changing the import is enough."""

import sys


def add_submodules(peer: str, *names: str) -> None:
    """Make `peer.name` importable for the modules into which a peer is divided; here they are all the one module `peer`."""
    module = sys.modules[peer]
    for name in names:
        sys.modules[f"{peer}.{name}"] = module
        own_name = name.rpartition(".")[2]
        if not hasattr(module, own_name):
            setattr(module, own_name, module)
