"""The measurements of `clustergym bench`; the files lie in `benchmarks/bench/` of a checkout."""

from clustergym.common.paths import PACKAGE

_checkout = PACKAGE.parent / "benchmarks" / "bench"
if (PACKAGE.parent / "pyproject.toml").is_file() and _checkout.is_dir():
    __path__.append(str(_checkout))
