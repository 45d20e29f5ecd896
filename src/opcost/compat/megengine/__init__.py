"""MegEngine's statistics calls: `module_stats` for a live model, `visualize` for a model file."""

from opcost.compat.megengine.layer_costs import register_flops, register_hook_module
from opcost.compat.megengine.module_stats import module_stats
from opcost.compat.megengine.network_visualize import visualize

__all__ = ["module_stats", "register_flops", "register_hook_module", "visualize"]
