"""What importing loads: nothing that takes long, unless it is needed."""

import pytest
from python_process import printed_by

ALWAYS = {"matplotlib", "rich", "scipy", "torch"}
LIGHT = (
    (
        "import clustergym",
        {"dataclasses", "gymnasium", "hydra", "importlib.metadata", "inspect", "numpy", "simpy"},
    ),
    ("import clustergym.cluster.cluster_files", {"omegaconf", "pydantic", "yaml"}),
    (
        "import clustergym.oracle.measured.table_oracle, clustergym.oracle.oracle_config\n"
        "import clustergym.oracle.roofline.roofline_oracle",
        {"hydra", "simpy"},
    ),
    ("import clustergym.trace.generators", set()),
    ("import clustergym.commands.oracle as oracle; oracle.main(['cache', 'where'])", {"hydra", "simpy"}),
    (
        "import clustergym.collect, clustergym.results.metrics.metrics\n"
        "import clustergym.results.report.metric_tables",
        set(),
    ),
)
"""What is run, one after the other, and which modules besides `ALWAYS` are not loaded then."""


@pytest.mark.processes
def test_importing_stays_light():
    told = [f"{code}\nprint('loaded:', {ALWAYS | heavy!r} & set(sys.modules))" for code, heavy in LIGHT]
    lines = printed_by("-c", "\n".join(["import sys", *told])).splitlines()
    loaded = [line for line in lines if line.startswith("loaded:")]
    assert loaded == ["loaded: set()"] * len(LIGHT)
