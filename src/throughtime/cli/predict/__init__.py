"""`throughtime predict`: a trained model on a new file, of any size."""

from throughtime.cli.predict._command import predict

__all__ = ["predict"]
