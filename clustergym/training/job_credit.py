"""Policy gradients with credit by job: PPO (Schulman et al., 2017) whose critic values each job by itself.

A reward is a sum over jobs, and an action matters to a job only while the job is in the system. So each job
in view has a value, its own cost to come, and an advantage by generalised estimation (Schulman et al., 2016)
over the decision points at which it is in view; an action's advantage is their sum. Jobs that arrive later,
whose costs an ordinary critic has to predict, are left out of it. Importing this imports PyTorch.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from gymnasium.vector import AutoresetMode
from torch import Tensor, nn
from torch.distributions import Normal

from clustergym.common.arrays import Bools, Floats, Ints
from clustergym.common.errors import InputError
from clustergym.envs.observations import JobRows
from clustergym.envs.vector.environment import SchedulingVectorEnv
from clustergym.sim.columns import TICKS_PER_S
from clustergym.training.row_network import MASKED, RowNetwork, RowPolicy, Rows, Singles


class Choices(NamedTuple):
    """The actions chosen in a batch of observations, their log-probabilities, and the legal actions.

    Priorities are chosen for each row with a job, shape (m, 2), and edits in each observation, shape (n,).

    Attributes
    ----------
    actions, log_probs : Tensor
    legal : Tensor of bool, shape (m, width)
        Of edits: which there are of each row with a job.
    may_stop : Tensor of bool, shape (n,)
    """

    actions: Tensor
    log_probs: Tensor
    legal: Tensor
    may_stop: Tensor

    def select(self, batch: Tensor, places: Tensor) -> Choices:
        """Return the choices in the observations numbered `batch`, whose rows are numbered `places`."""
        # Of priorities there is a choice for each row, and `legal` has no columns.
        of = batch if self.legal.shape[1] else places
        actions, log_probs = self.actions[of], self.log_probs[of]
        return Choices(actions, log_probs, self.legal[places], self.may_stop[batch])


class Rollout(NamedTuple):
    """Recorded steps as arrays (steps, environments, V), with V = the number of rows of jobs.

    Attributes
    ----------
    rows : Rows
        Of the observations of all steps and environments, as the environments show them.
    choices : Choices
    values : ndarray of float, shape (S + 1, E, V)
    jobs : ndarray of int, shape (S + 1, E, V)
        What each value is of; -1: no job.
    cost : ndarray of float, shape (S, E, V)
        What that cost during a step.
    elapsed_s : ndarray of float, shape (S, E)
        Seconds that the clock moved.
    left : ndarray of bool, shape (S, E, V)
        The job left during the step, or its episode ended.
    """

    rows: Rows
    choices: Choices
    values: Floats
    jobs: Ints
    cost: Floats
    elapsed_s: Floats
    left: Bools


def advantages_by_job(rollout: Rollout, settings: Any) -> tuple[Floats, Floats]:
    """Return the actions' advantages, (S steps, E envs), and targets of the V critic outputs, (S, E, V)."""
    number, envs, columns = rollout.cost.shape
    own = np.zeros((number, envs, columns))
    following = np.zeros((envs, columns))
    for at in reversed(range(number)):
        # Where each job stands at the next decision point; jobs keep no row.
        same = rollout.jobs[at][:, :, None] == rollout.jobs[at + 1][:, None, :]
        goes_on = same.any(2) & ~rollout.left[at] & (rollout.jobs[at] >= 0)
        place = same.argmax(2)
        next_value = np.take_along_axis(rollout.values[at + 1], place, 1)
        next_own = np.take_along_axis(following, place, 1)
        # A job that stays but is not shown is taken to be worth what it was.
        hidden = ~goes_on & ~rollout.left[at]
        moved_s = rollout.elapsed_s[at][:, None]
        discount = 1.0 if settings.discount_s is None else np.exp(-moved_s / settings.discount_s)
        # Edits have a lambda of their own: an episode has some 1,400 of them, and the clock stands still.
        decay = np.where(moved_s > 0.0, settings.trace_decay, settings.trace_decay_edit)
        worth = np.where(goes_on, next_value, np.where(hidden, rollout.values[at], 0.0))
        # Of each job, with V minus the cost to come, c the cost of the step, g = exp(-seconds / discount_s)
        # and l the decay: delta_t = g V_t+1 - c_t - V_t, A_t = delta_t + g l A_t+1.
        delta = discount * worth - rollout.cost[at] - rollout.values[at]
        following = delta + discount * decay * np.where(goes_on, next_own, 0.0)
        following = np.where(rollout.jobs[at] >= 0, following, 0.0)
        own[at] = following
    # The sum over jobs in view is the action's; each job's own is what its value should have been.
    # With one value and one advantage for all jobs Elastic-16 ends at 1.101 of heSRPT's JCT, not at 0.941.
    return own.sum(2), own + rollout.values[:-1]


def draw_actions(
    policy: RowPolicy, rows: Rows, masks: npt.NDArray[np.int8], generator: torch.Generator
) -> tuple[Choices, Any, Tensor]:
    """Sample actions for normalised rows; return them as choices and for environments, and rows' values."""
    if not policy.discrete:
        head, values, _ = policy(rows)
        choice: Any = Normal(head, policy.log_std.exp())
        noise = torch.randn(head.shape, generator=generator, device=head.device)
        action = head + noise * choice.stddev
        legal, may_stop = head.new_empty(len(head), 0), head.new_empty(rows.observations)
        drawn = Choices(action, choice.log_prob(action).sum(1), legal, may_stop)
        return drawn, policy.fill_priorities(rows, action), values
    logs, values = policy.log_chances(rows, masks)
    # By inversion: torch.multinomial takes as long here as half of the network's other work.
    sums = logs.exp().double().cumsum(1)
    drawn_at = torch.rand(len(sums), 1, generator=generator, device=sums.device, dtype=sums.dtype)
    action = torch.searchsorted(sums, drawn_at * sums[:, -1:], right=True)
    legal = torch.from_numpy(masks > 0).to(action.device)
    of_rows = legal[:, :-1].reshape(rows.observations, rows.rows, -1)[rows.batch, rows.row]
    drawn = Choices(action[:, 0], logs.gather(1, action)[:, 0], of_rows, legal[:, -1])
    return drawn, action[:, 0].cpu().numpy(), values


def log_probs_of_edits(rows: Rows, choices: Choices, head: Tensor, stop: Tensor) -> tuple[Tensor, Tensor]:
    """Return chosen actions' log-probabilities and entropies, from logits of changing a job's GPUs or `stop`.

    Shape (n,) each. Rows without a job, most of them, take no part.

    Parameters
    ----------
    rows : Rows
    choices : Choices
    head : Tensor, shape (m, width)
        Logits of each row's edits.
    stop : Tensor, shape (n,)
        Logits of stopping.
    """
    width = head.shape[1]
    logits = head.masked_fill(~choices.legal, MASKED)
    stop = stop.masked_fill(~choices.may_stop, MASKED)
    # The largest logit of each observation is taken off, as in any softmax, here over a list of ragged rows.
    most = stop.detach().scatter_reduce(0, rows.batch, logits.detach().amax(1), "amax")
    weights, of_stop = (logits - most[rows.batch, None]).exp(), (stop - most).exp()
    sums = rows.total(weights.sum(1)) + of_stop
    counts = rows.counts()
    # The rows with a job are the first ones.
    place = (counts.cumsum(0) - counts + choices.actions // width).clamp_max(len(head) - 1)
    stops = choices.actions == rows.rows * width
    chosen = torch.where(stops, stop, logits[place, choices.actions % width])
    log_sums = sums.log() + most
    mean = (rows.total((weights * logits).sum(1)) + of_stop * stop) / sums
    return chosen - log_sums, log_sums - mean


def check_device(name: str) -> None:
    """Raise an InputError if PyTorch cannot compute on a device."""
    try:
        torch.empty(0, device=name)
    except (RuntimeError, AssertionError) as error:
        raise InputError(
            f"{name!r} cannot be used", field="device", remedy="give cpu, or a GPU that PyTorch has, as cuda"
        ) from error


class JobCreditLearner:
    """Trains a network that reads rows of jobs, by PPO with a value for each job, on the compiled engine.

    Parameters
    ----------
    envs : SchedulingVectorEnv
        With flat observations that have rows of jobs, and `autoreset_mode="Disabled"`.
    settings : clustergym.training.job_credit_agent.JobCreditAgent
    seed : int

    Attributes
    ----------
    policy : RowNetwork
    num_timesteps : int
        Steps of the environments so far.

    Raises
    ------
    InputError
        If the environments begin episodes themselves, their observations have no rows, their rewards are no
        sum over jobs, or the device cannot be used.
    """

    def __init__(self, envs: SchedulingVectorEnv, settings: Any, seed: int) -> None:
        features = envs.single.features
        if envs.autoreset_mode is not AutoresetMode.DISABLED or not isinstance(features, JobRows):
            message, remedy = (
                "cannot be learned in",
                "give autoreset_mode='Disabled' and features=jobs or ranked",
            )
            raise InputError(message, field="env", remedy=remedy)
        check_device(settings.device)
        torch.set_num_threads(1)
        self.settings, self.num_timesteps = settings, 0
        torch.manual_seed(seed)
        self.policy = RowNetwork(features, envs.single_action_space, settings.hidden, settings.log_std)
        self.policy.to(settings.device)
        self.policy.optimizer = torch.optim.Adam(
            self.policy.parameters(), settings.learning_rate, eps=1e-5, fused=True
        )
        self.begin(envs, seed)

    def begin(self, envs: SchedulingVectorEnv, seed: int) -> None:
        """Begin new episodes in the environments, and seed the random streams."""
        self.envs = envs
        self._generator = torch.Generator(self.settings.device).manual_seed(seed)
        self._observations: Any = envs.reset(seed=seed)[0]
        if not self.policy.seen:
            self.policy.see(self.policy.read_rows(self._observations).inputs)

    def decide(self, observations: Singles, masks: npt.NDArray[np.int8]) -> npt.NDArray[Any]:
        """Return the network's most probable action for each observation."""
        return self.policy.decide(observations, masks)

    def collect(self) -> Rollout:
        """Step the environments with sampled actions, and return the recorded steps."""
        kept: dict[str, list[Any]] = {name: [] for name in Rollout._fields}
        envs = self.envs
        for _ in range(self.settings.n_steps):
            masks, began = envs.action_masks(), envs.batch.reached
            jobs = envs.row_jobs()
            # Before and after the step for the same jobs: a job that leaves keeps its last cost.
            before, _ = envs.job_costs(jobs)
            rows = self.policy.read_rows(self._observations)
            with torch.no_grad():
                scaled = self.policy.scale(rows)
                drawn, given, of_rows = draw_actions(self.policy, scaled, masks, self._generator)
                values = scaled.spread(of_rows).cpu().numpy()
            seen, _, terminated, truncated, _ = envs.step(given)
            over = terminated | truncated
            after, gone = envs.job_costs(jobs)
            cost, left = after - before, gone | over[:, None]
            elapsed_s = (envs.batch.reached - began) / TICKS_PER_S
            step = (rows, drawn, values, jobs, cost, elapsed_s, left)
            for name, part in zip(Rollout._fields, step, strict=True):
                kept[name].append(part)
            if over.any():
                seen, _ = envs.reset(options={"reset_mask": over})
            self._observations = seen
        rows = self.policy.scale(self.policy.read_rows(self._observations))
        with torch.no_grad():
            kept["values"].append(rows.spread(self.policy(rows)[1]).cpu().numpy())
        kept["jobs"].append(envs.row_jobs())
        self.num_timesteps += self.settings.n_steps * envs.num_envs
        joined = Rows.join(kept.pop("rows"))
        choices = Choices(*(torch.cat(parts) for parts in zip(*kept.pop("choices"), strict=True)))
        return Rollout(joined, choices, **{name: np.stack(parts) for name, parts in kept.items()})

    def update(self, rollout: Rollout, rate: float = 1.0) -> dict[str, float]:
        """Update the network by PPO at `rate` times the learning rate; return losses and the like by name.

        Parameters
        ----------
        rollout : Rollout
        rate : float
            What the learning rate is multiplied by.
        """
        settings = self.settings
        for group in self.policy.optimizer.param_groups:
            group["lr"] = rate * settings.learning_rate
        advantage, wanted = advantages_by_job(rollout, settings)
        device = settings.device
        gain = torch.from_numpy(advantage.reshape(-1)).float().to(device)
        # Over the whole rollout: of a batch, few jobs in view would look like a small advantage.
        gain = (gain - gain.mean()) / (gain.std() + 1e-8)
        rows = self.policy.scale(rollout.rows)
        goal = torch.from_numpy(wanted.reshape(-1, wanted.shape[2])).float().to(device)[rows.batch, rows.row]
        totals = torch.zeros(3, dtype=torch.float64, device=device)
        for _ in range(settings.n_epochs):
            shuffled = torch.randperm(len(gain), generator=self._generator, device=device)
            for batch in torch.split(shuffled, settings.batch_size):
                places, of = rows.places(batch)
                own = Rows(rows.inputs[places], of, rows.row[places], len(batch), rows.rows)
                totals += self._step(own, rollout.choices.select(batch, places), gain[batch], goal[places])
        # After the update: this rollout's ratios are of inputs scaled as when it was played.
        self.policy.see(rollout.rows.inputs)
        means = totals / (settings.n_epochs * -(-len(gain) // settings.batch_size))
        return dict(zip(("approx_kl", "value_loss", "entropy"), means.tolist(), strict=True))

    def _step(self, rows: Rows, choices: Choices, gain: Tensor, goal: Tensor) -> Tensor:
        """Make one gradient step on some of the actions; return its losses and other figures, shape (3,)."""
        settings, policy = self.settings, self.policy
        head, values, stop = policy(rows)
        if policy.discrete:
            new, entropy = log_probs_of_edits(rows, choices, head, stop)
        else:
            choice: Any = Normal(head, policy.log_std.exp())
            new, entropy = choice.log_prob(choices.actions).sum(1), choice.entropy()
            gain = gain[rows.batch]
        log_ratio = new - choices.log_probs
        ratio, entropy = log_ratio.exp(), entropy.mean()
        clipped = ratio.clamp(1.0 - settings.clip_range, 1.0 + settings.clip_range)
        improved = torch.minimum(ratio * gain, clipped * gain).mean()
        error = nn.functional.smooth_l1_loss(values, goal)
        # Stock PPO weighs the critic 0.5; with 2 the agent ends at 0.941 of heSRPT's JCT, with 0.5 at 1.000.
        loss: Any = settings.value_weight * error - improved - settings.ent_coef * entropy
        policy.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(policy.parameters(), 0.5)
        policy.optimizer.step()
        # An estimate of the KL divergence that is never below 0: E[r - 1 - log r] (Schulman, 2020).
        moved = (ratio - 1.0 - log_ratio).mean()
        return torch.stack((moved, error, entropy)).detach().double()

    def learn(self, until: int, steps: int) -> dict[str, float]:
        """Train until step number `until`, of `steps` in all; return the updates' mean figures, by name.

        The learning rate falls on a line, from the first step to 0 at the last.
        """
        rows = []
        while self.num_timesteps < until:
            rollout = self.collect()
            rows.append(self.update(rollout, max(1.0 - self.num_timesteps / steps, 0.0)))
        return {name: float(np.mean([row[name] for row in rows])) for name in rows[0]}
