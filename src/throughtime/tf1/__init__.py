"""TensorFlow 1 programs on the engine: `import throughtime.tf1 as tf`."""

from throughtime.tf1 import _load_all as _load_all
from throughtime.tf1._namespace import missing_attribute as __getattr__  # noqa: F401
from throughtime.tf1._version import __version__ as __version__
