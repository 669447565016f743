"""The published policies and placement algorithms, which lie in `policies/` of a checkout.

They import as `clustergym.policies`, so that a user's own `policies/` folder cannot hide them.
"""

from clustergym.common.paths import PACKAGE

_checkout = PACKAGE.parent / "policies"
if (PACKAGE.parent / "pyproject.toml").is_file() and _checkout.is_dir():
    __path__.append(str(_checkout))
