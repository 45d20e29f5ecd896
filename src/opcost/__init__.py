"""opcost tells what a neural network costs and where its time goes."""
