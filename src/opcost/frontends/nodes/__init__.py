"""Models as graphs of nodes with named values: the part that readers of ONNX, TensorFlow Lite and Core ML share."""
