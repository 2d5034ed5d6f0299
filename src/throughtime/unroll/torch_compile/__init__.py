"""An unroll under torch.compile and torch.export."""
