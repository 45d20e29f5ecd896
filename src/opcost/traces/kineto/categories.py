"""The categories of Kineto's events, of all vintages, that are work, and that of changes of memory."""

from __future__ import annotations

OPERATOR, ANNOTATION, RUNTIME, OVERHEAD, MODULE, DEVICE, MEMORY, BACKEND = range(8)
"""What third-party backends record is on the host or on their device: where it ran decides."""
IGNORED, UNREAD = -1, -2
"""What is no work, and what is but is not read: work on a device without a category."""
PROVIDERS = {
    OPERATOR: "cpu_op",
    ANNOTATION: "user_annotation",
    RUNTIME: "runtime",
    OVERHEAD: "overhead",
    BACKEND: "runtime",
}

CATEGORIES: dict[str, int] = {
    "cpu_op": OPERATOR, "Operator": OPERATOR, "hpu_op": BACKEND,
    "user_annotation": ANNOTATION,
    "cuda_runtime": RUNTIME, "cuda_driver": RUNTIME, "Runtime": RUNTIME, "mtia_runtime": RUNTIME, "glow_runtime": RUNTIME,
    "xpu_runtime": RUNTIME, "xpu_driver": RUNTIME, "privateuse1_runtime": BACKEND, "privateuse1_driver": BACKEND,
    "hip_runtime": RUNTIME, "hip_driver": RUNTIME,
    "overhead": OVERHEAD,
    "python_function": MODULE,
    "kernel": DEVICE, "Kernel": DEVICE, "gpu_memcpy": DEVICE, "Memcpy": DEVICE, "gpu_memset": DEVICE, "Memset": DEVICE,
    "mtia_ccp_events": DEVICE, "concurrent_kernel": DEVICE, "privateuse1_kernel": DEVICE,
    "cpu_instant_event": MEMORY,
}  # fmt: skip
