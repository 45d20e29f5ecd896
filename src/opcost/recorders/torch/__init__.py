"""PyTorch on the CPU and on CUDA. Importing this package does not import torch."""
