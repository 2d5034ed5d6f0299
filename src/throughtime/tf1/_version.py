"""The version of TensorFlow that the names and rules are those of."""

from throughtime.tf1._namespace import export

__version__ = "1.15.5"
for _name in ("VERSION", "version.VERSION"):
    export(_name, __version__)
export("GIT_VERSION", "throughtime")
export("COMPILER_VERSION", "llvm")
