"""The published policies and placement algorithms, which lie in `policies/` of a checkout.

They import as `clustergym.policies`, so that a user's own `policies/` folder cannot hide them.
"""

from clustergym.common.paths import checkout_folders

__path__ += checkout_folders("policies")
