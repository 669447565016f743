"""Credit by job: a job's costs and advantages, the network over rows, training, and its checkpoints."""

from types import SimpleNamespace

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Discrete

from clustergym.commands import train as train_command
from clustergym.common.errors import InputError
from clustergym.scenario.registry import make_placer, make_policy
from clustergym.sim.drive import simulate
from clustergym.training.network_checkpoints import load

torch = pytest.importorskip("torch")
pytest.importorskip("stable_baselines3", reason="stable-baselines3 is not installed")
torch.set_num_threads(1)

from clustergym.training.job_credit import (  # noqa: E402
    JobCreditLearner,
    Rollout,
    advantages_by_job,
    draw_actions,
    log_probs_of_edits,
)
from clustergym.training.job_credit_agent import JobCreditAgent  # noqa: E402
from clustergym.training.network_agent import greedy_figures, play  # noqa: E402
from clustergym.training.row_network import SHARED, RowNetwork, Rows  # noqa: E402
from clustergym.training.split_env import make_split_env  # noqa: E402

pytestmark = pytest.mark.compiled
SMALL = [
    "agent=job_credit", "progress=false", "env.jobs=6", "agent.validation=2", "agent.traces=3",
    "agent.n_envs=2", "agent.n_steps=16", "agent.steps=96", "agent.validate_every=32",
    "agent.hidden=[8, 8]", "agent.batch_size=16",
]  # fmt: skip


def make_envs(name: str, number: int = 3, **parameters):
    """Make environments with flat observations that begin no episodes themselves."""
    return gymnasium.make_vec(
        f"ClusterGym/{name}", num_envs=number, observation="flat", autoreset_mode="Disabled", **parameters
    )


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("Elastic-16-v1", {}),
        ("Elastic-16-v1", {"reward": {"slowdown": 1.0, "jobs_in_system": 0.5}}),
        ("Fair-16-v1", {}),
        ("Deadline-16-v1", {}),
        ("Priority-16-v0", {}),
    ],
)
def test_the_mean_of_all_jobs_costs_is_minus_the_return(name, parameters):
    """What credit by job divides among jobs is the reward, all of it, at every step of an episode."""
    envs = make_envs(name, jobs=8, **parameters)
    envs.reset(seed=5)
    total, goes_on, steps = np.zeros(3), np.ones(3, dtype=bool), 0
    while goes_on.all() and steps < 400:
        jobs = envs.all_jobs()
        _, rewards, terminated, truncated, _ = envs.step(envs.sample_actions())
        total += rewards
        costs, left = envs.job_costs(jobs)
        assert costs.mean(1) == pytest.approx(-total, abs=1e-9)
        goes_on, steps = ~(terminated | truncated), steps + 1
    assert left[~goes_on].all()


@pytest.mark.parametrize("device", ["gpu", "cuda:99"])
def test_a_device_that_pytorch_does_not_have_is_refused(device):
    envs = make_envs("Priority-16-v0", jobs=4)
    with pytest.raises(InputError, match=rf"device: '{device}' cannot be used.*give cpu"):
        JobCreditLearner(envs, JobCreditAgent(device=device), 0)


def test_edits_are_drawn_with_the_networks_probabilities():
    """Of 6,000 draws from one state each legal action has its share, to four standard errors."""
    envs = make_envs("Elastic-16-v1", 1, jobs=4)
    learner = JobCreditLearner(envs, JobCreditAgent(), 0)
    masks, policy = envs.action_masks(), learner.policy
    with torch.no_grad():
        policy.head.weight.mul_(100.0)
        rows = policy.scale(policy.read_rows(learner._observations))
        shares = policy.log_chances(rows, masks)[0][0].exp().numpy()
        drawn = [int(draw_actions(policy, rows, masks, learner._generator)[1][0]) for _ in range(6_000)]
    counts = np.bincount(drawn, minlength=len(shares))
    assert counts[masks[0] == 0].sum() == 0
    assert (shares > 0.01).sum() > 1
    errors = np.sqrt(6_000 * shares * (1.0 - shares))
    assert (np.abs(counts - 6_000 * shares) <= 4.0 * errors + 1e-6).all()


def test_a_term_that_is_no_sum_over_jobs_is_refused():
    envs = make_envs("Elastic-16-v1", jobs=4, reward={"log_jct": 1.0}, baseline="fcfs")
    envs.reset(seed=0)
    with pytest.raises(InputError, match="is no sum over jobs"):
        envs.job_costs(envs.row_jobs())


def two_steps(**changed) -> Rollout:
    """Two steps of one environment with two rows: job 7 moves from row 1 to 0 as job 4 leaves."""
    parts = {
        "rows": None, "choices": None,
        "values": np.array([[[-5.0, -9.0]], [[-6.0, 0.0]], [[-2.0, 0.0]]]),
        "jobs": np.array([[[4, 7]], [[7, -1]], [[7, -1]]]),
        "cost": np.array([[[2.0, 3.0]], [[3.0, 0.0]]]),
        "elapsed_s": np.array([[100.0], [0.0]]),
        "left": np.array([[[True, False]], [[False, False]]]),
    }  # fmt: skip
    return Rollout(**{**parts, **changed})


def test_advantages_by_hand():
    settings = JobCreditAgent(discount_s=None, trace_decay=0.5, trace_decay_edit=0.25)
    advantage, wanted = advantages_by_job(two_steps(), settings)
    # Second step, job 7: -2 - 3 + 6 = 1. First step: job 4 left at -2, its value was -5: 3. Job 7:
    # -6 - 3 + 9 = 0, and half of the 1 that followed.
    assert advantage.tolist() == [[3.0 + 0.5], [1.0]]
    assert wanted[:, 0].tolist() == [[-2.0, -8.5], [-5.0, 0.0]]


def test_a_discount_by_time_counts_what_is_to_come_less():
    settings = JobCreditAgent(discount_s=100.0, trace_decay=0.5)
    advantage, _ = advantages_by_job(two_steps(), settings)
    # The clock moves 100 s in the first step, so that 1/e of the 6 and of the 0.5 are left.
    assert advantage[0, 0] == pytest.approx(3.0 + (9.0 - 3.0 - 5.5 / np.e))


def test_a_job_that_loses_its_row_is_worth_what_it_was():
    jobs = np.array([[[4, 7]], [[8, -1]], [[8, -1]]])
    settings = JobCreditAgent(discount_s=None, trace_decay=1.0)
    advantage, _ = advantages_by_job(two_steps(jobs=jobs), settings)
    # Job 4 left: 3. Job 7 is shown no more: its value stays -9, and it has cost 3.
    assert advantage[0, 0] == 3.0 - 3.0


def test_rows_that_are_exchanged_exchange_their_outputs():
    envs = make_envs("Priority-16-v0", 1, jobs=12, loads=(8.0,))
    seen, _ = envs.reset(seed=0)
    for _ in range(6):
        seen, *_ = envs.step(envs.sample_actions())
    learner = JobCreditLearner(envs, JobCreditAgent(), 0)
    with torch.no_grad():
        for value in learner.policy.parameters():
            value += 0.3 * torch.randn(value.shape, generator=torch.Generator().manual_seed(1))
    tables = envs.single.features.unpack(seen.copy())
    assert (tables["jobs"][0, :3, 0] > 0).all()
    swapped = seen.copy()
    other = envs.single.features.unpack(swapped)
    for name in ("jobs", "options", "ranked"):
        other[name][0, [0, 2]] = tables[name][0, [2, 0]]
    one, two = (learner.decide(shown, None)[0].reshape(-1, 2) for shown in (seen, swapped))
    assert one[[2, 1, 0]] == pytest.approx(two[[0, 1, 2]], abs=1e-6)
    assert np.abs(one[0] - one[2]).max() > 1e-3
    assert (one[tables["jobs"][0, :, 0] == 0] == 0).all()


@pytest.mark.parametrize("name", ["Elastic-16-v1", "Priority-16-v0"])
def test_what_costs_less_becomes_likelier(name):
    """The first row's job pays for each step whose action is the costly one; after updates it is rarer."""
    envs = make_envs(name, 8, jobs=6)
    settings = JobCreditAgent(n_steps=32, n_epochs=4, hidden=(16, 16), discount_s=60.0,
                         trace_decay=0.0, trace_decay_edit=0.0, learning_rate=2e-3,
                         value_weight=0.5)  # fmt: skip
    learner = JobCreditLearner(envs, settings, 0)

    def costly(rollout: Rollout) -> np.ndarray:
        actions, shape = rollout.choices.actions, rollout.elapsed_s.shape
        if learner.policy.discrete:
            width = envs.single.actions.width
            found = (actions % width == width - 1) & (actions < envs.single_action_space.n - 1)
            return found.numpy().reshape(shape)
        found = np.zeros(rollout.rows.observations, dtype=bool)
        first = rollout.rows.row == 0
        found[rollout.rows.batch[first]] = (actions[first, 0] > 0.0).numpy()
        return found.reshape(shape)

    shares = []
    for _ in range(20):
        rollout = learner.collect()
        shares.append(costly(rollout).mean())
        cost = np.zeros_like(rollout.cost)
        cost[:, :, 0] = costly(rollout)
        learner.update(rollout._replace(cost=cost))
    assert shares[-1] < 0.75 * shares[0]


def test_chances_of_edits_are_those_of_all_actions():
    """Chances over the rows that have a job are those over all rows, of which the others are illegal."""
    envs = make_envs("Elastic-16-v1", 4, jobs=10, loads=(8.0,))
    learner = JobCreditLearner(envs, JobCreditAgent(n_steps=12), 3)
    with torch.no_grad():
        for value in learner.policy.parameters():
            value += 0.3 * torch.randn(value.shape, generator=torch.Generator().manual_seed(1))
        rollout = learner.collect()
        rows = learner.policy.scale(rollout.rows)
        head, _, stop = learner.policy(rows)
        chosen, entropy = log_probs_of_edits(rows, rollout.choices, head, stop)
        masks = np.zeros((rows.observations, rows.rows * head.shape[1] + 1), np.int8)
        masks[:, :-1] = rows.spread(rollout.choices.legal.float()).flatten(1).numpy()
        masks[:, -1] = rollout.choices.may_stop.numpy()
        logs, _ = learner.policy.log_chances(rows, masks)
    assert chosen.numpy() == pytest.approx(rollout.choices.log_probs.numpy(), abs=1e-5)
    assert chosen.numpy() == pytest.approx(logs.gather(1, rollout.choices.actions[:, None])[:, 0], abs=1e-5)
    assert entropy.numpy() == pytest.approx(-(logs.exp() * logs.clamp_min(-99.0)).sum(1).numpy(), abs=1e-4)
    stops = rollout.choices.actions == masks.shape[1] - 1
    assert stops.any()
    assert not stops.all()


def test_rows_of_chosen_observations_are_found():
    """Three observations with 2, 0 and 3 rows: those of the last and the first are at 2, 3, 4 and 0, 1."""
    batch, row = torch.tensor([0, 0, 2, 2, 2]), torch.tensor([0, 1, 0, 1, 2])
    rows = Rows(torch.zeros(5, 1), batch, row, 3, 4)
    places, of = rows.places(torch.tensor([2, 1, 0]))
    assert places.tolist() == [2, 3, 4, 0, 1]
    assert of.tolist() == [0, 0, 0, 2, 2]
    joined = Rows.join([rows, rows])
    assert joined.batch.tolist() == [0, 0, 2, 2, 2, 3, 3, 5, 5, 5]
    assert joined.observations == 6


def test_environments_that_begin_episodes_themselves_are_refused():
    envs = gymnasium.make_vec("ClusterGym/Priority-16-v0", num_envs=1, observation="flat")
    with pytest.raises(InputError, match="autoreset_mode='Disabled'"):
        JobCreditLearner(envs, JobCreditAgent(), 0)


def run_train(folder, *more: str) -> int:
    return train_command.main([*SMALL, f"output={folder}", *more])


def test_a_training_is_the_same_again(tmp_path):
    assert run_train(tmp_path / "a") == run_train(tmp_path / "b") == 0
    a, b = (tmp_path / name / f"{name}.safetensors" for name in "ab")
    assert a.read_bytes() == b.read_bytes()


@pytest.mark.parametrize("name", ["priority-16", "elastic-16", "deadline-16"])
def test_a_checkpoint_runs_as_a_policy_to_the_same_digest(name, tmp_path):
    assert run_train(tmp_path / "a", f"env={name}", "agent.steps=32") == 0
    path = str(tmp_path / "a" / "a.safetensors")
    loaded = load(path)
    env = make_split_env(loaded.about["traces"]["env"], "dev", 2)
    assert greedy_figures(loaded.policy, env, 2)["dev_return"] == loaded.about["curves"]["best"]
    play(loaded.policy, env, 0)
    policy = make_policy({"name": "learned", "checkpoint": path})
    run = simulate(env.unwrapped.scenario, policy, make_placer({"name": "buddy"}), 0)
    assert run.simulation.log.digest == env.unwrapped.log.digest


def test_the_discount_by_time_is_over_six_hours():
    """Of the published recipe: a discount by time of exp(-t / 6 h)."""
    assert JobCreditAgent().discount_s == 21_600.0


def test_layers_begin_orthogonal_each_with_its_gain():
    layout = {"jobs": (4, 3), **dict.fromkeys(SHARED, (2,))}
    network = RowNetwork(SimpleNamespace(layout=layout), Discrete(4 * 5 + 1), (6, 4))
    gains = {"row": 2**0.5, "mixed": 2**0.5, "head": 0.01, "stop": 0.01, "value": 1.0}
    for name, gain in gains.items():
        found = torch.linalg.svdvals(getattr(network, name).weight.detach())
        assert found.numpy() == pytest.approx(gain, rel=1e-5), name
        assert not getattr(network, name).bias.any()
