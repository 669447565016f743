"""What several tests of policies need."""

import pytest


@pytest.fixture
def queues(tmp_path):
    """Write a file of queues, and return its path."""

    def write(text):
        path = tmp_path / "queues.yaml"
        path.write_text(text)
        return str(path)

    return write
