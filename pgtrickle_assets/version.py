"""The version of this release."""

from importlib.metadata import version

VERSION = version("pgtrickle-assets")
