"""Claims on the oracle: rows on the published data, and the figures worked out by hand on a small table."""

import json
from pathlib import Path

import pytest
from clustergym.papers.claims import NO_FIGURE, NOT_SIMULATED, PaperClaim
from clustergym.papers.estimates import _fewest_by_memory, _figures, _stored_errors, judge_estimates
from clustergym.papers.planning import arena_classes
from published_data import DATA, needs

from clustergym.common.errors import InputError
from clustergym.oracle.measured.iteration_times import read_measurements
from clustergym.oracle.models.catalog import load_catalog
from clustergym.papers import planning

CLAIMS = Path(__file__).parents[2] / "docs" / "reproduction"
needs_data = needs("arena/arena_profile.csv")

TABLE = """\
model_family,params,batch_size,gpu_type,num_nodes,gpus_per_node,kind,iteration_time_s
bert,1.3B,128,a100,1,2,optimal,5.0
bert,1.3B,128,a100,1,2,estimated_best,4.0
bert,1.3B,128,a100,1,4,optimal,2.0
bert,1.3B,128,a100,1,4,estimated_best,2.2
bert,1.3B,128,a100,1,4,estimated_dp,3.0
bert,1.3B,128,a100,1,1,estimated_best,9.0
"""


def test_an_artifacts_estimates_are_held_against_its_own_measured_times(tmp_path: Path) -> None:
    path = tmp_path / "profile.csv"
    path.write_text(TABLE)
    measured = read_measurements(path, load_catalog())
    # 4 for 5 and 2.2 for 2: 20 and 10 %. One GPU was estimated and not measured.
    best = _stored_errors(measured)
    assert {gpus: of["error"] for gpus, of in best.items()} == pytest.approx({"all": 15, "2": 20, "4": 10})
    assert [of["rows"] for of in best.values()] == [2, 1, 1]


def test_fewest_gpus_by_the_artifacts_memory(tmp_path: Path) -> None:
    path = tmp_path / "memory.csv"
    # 1.2 x 26.7 GB are more than 0.8 x 40 GB, 1.2 x 26.6 GB are less.
    path.write_text(
        "model_family,params,batch_size,dp_degree,memory_gb\n"
        "moe,2.4B,512,1,\nmoe,2.4B,512,2,26.7\nmoe,2.4B,512,4,26.6\nmoe,2.4B,512,8,17.5\n"
    )
    assert _fewest_by_memory(path) == 4


def test_missing_data_are_one_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"arena_profile\.csv: no such file"):
        judge_estimates(tmp_path, "arena")


@pytest.fixture(scope="module", params=[2, pytest.param(1, marks=pytest.mark.nightly)])
def found(request: pytest.FixtureRequest) -> dict[str, PaperClaim]:
    """Return the claims of Arena by every second of its models, or by all; `.ci/nightly` holds Crius's."""
    step = request.param
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(planning, "arena_classes", lambda catalog: arena_classes(catalog)[::step])
        _figures.cache_clear()
        claims = judge_estimates(DATA, "arena")
        _figures.cache_clear()
    assert all(claim.quick for claim in claims)
    # What the paper says of each stands in the committed claims, at their end.
    committed = json.loads((CLAIMS / "arena.claims.json").read_text())["claims"][-len(claims) :]
    for name in ("claim", "source", "paper", "unit", "decimals", "comparison"):
        assert [claim.plain()[name] for claim in claims] == [row[name] for row in committed]
    assert len({claim.claim for claim in claims}) == len(claims)
    return {claim.claim: claim for claim in claims}


@needs_data
def test_the_oracle_holds_what_arena_says_of_estimates(found: dict[str, PaperClaim]) -> None:
    proxy = found["best proxy plan: loss against the searched optimum"]
    assert (proxy.paper, proxy.first_stated_by) == (pytest.approx(6.6), "crius")
    assert proxy.fair < 6.6
    errors = [
        found[f"error of profiled iteration time, {n} GPU{'s' * (n > 1)}"].fair for n in (1, 2, 4, 8, 16)
    ]
    assert errors == sorted(errors)
    assert errors[-1] < 12
    assert found["fewest A100 for MoE-2.4B by the best plan"].verdict == "reproduced"
    assert found["fewest A100 for MoE-2.4B by data parallelism"].as_published == 4


@needs_data
def test_what_cannot_be_simulated_says_why(found: dict[str, PaperClaim]) -> None:
    without = [claim for claim in found.values() if claim.verdict in (NOT_SIMULATED, NO_FIGURE)]
    assert all(claim.why for claim in without)
