"""`throughtime demo`: the contract on four instances, then a speaker classifier, then a picture."""

from throughtime.cli.demo._command import demo

__all__ = ["demo"]
