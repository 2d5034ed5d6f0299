"""TensorFlow 1 programs on the engine: `import throughtime.tf1 as tf`."""

from throughtime.tf1._namespace import missing_attribute as __getattr__
from throughtime.tf1._version import __version__
from throughtime.tf1 import _load_all
