"""The twin of one's own cluster, live runs, other schedulers' rules; in `operators/` of a checkout."""

from clustergym.common.paths import checkout_folders

__path__ += checkout_folders("operators")
