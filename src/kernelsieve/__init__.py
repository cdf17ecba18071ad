"""Small, readable kernel features chosen by importance sampling."""

__version__ = "0.1.0.dev0"
