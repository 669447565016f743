"""Where tests find the published data: in $CLUSTERGYM_DATA, else in shared/data beside the checkout."""

from pathlib import Path

import pytest

from clustergym.common.paths import data_folder

DATA = data_folder().absolute()


def needs(*names: str) -> pytest.MarkDecorator:
    """Return the mark of tests that skip where one of these files or folders of the data is missing."""
    missing = [name for name in names if not (DATA / name).exists()]
    return pytest.mark.skipif(bool(missing), reason=_reason(*missing))


def find_published(name: str) -> Path:
    """Return the path of a file of the data; skip the test where it is missing."""
    if not (DATA / name).exists():
        pytest.skip(_reason(name))
    return DATA / name


def _reason(*missing: str) -> str:
    return f"{', '.join(missing)} not in the published data, {DATA}; set CLUSTERGYM_DATA"
