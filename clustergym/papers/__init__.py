"""What reproduces the figures of papers; the files lie in `papers/` of a checkout."""

from clustergym.common.paths import checkout_folders

__path__ += checkout_folders("papers")
