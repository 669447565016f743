"""The measurements of `clustergym bench`; the files lie in `benchmarks/bench/` of a checkout."""

from clustergym.common.paths import checkout_folders

__path__ += checkout_folders("benchmarks/bench")
