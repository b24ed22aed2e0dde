"""The version of the package, which is that of the programs it comes with."""

__version__ = "0.1.0"
