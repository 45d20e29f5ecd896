"""Programs of PyTorch in files: what readers of `.pt2` and of TorchScript share, from one operator to the tree of modules."""
