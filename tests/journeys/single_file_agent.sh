# PPO in one file in the manner of CleanRL, outside of any checkout, on an environment of this package.
set -euo pipefail
python -c 'import torch' 2> /dev/null || { echo "PyTorch is not installed: pip install 'clustergym[rl]'"; exit 77; }
cat > ppo.py <<'PY'
import gymnasium as gym
import numpy as np
import torch
from torch import nn
from torch.distributions import Categorical

import clustergym  # registers ClusterGym/...

ID, ENVS, STEPS, UPDATES, EPOCHS = "ClusterGym/Elastic-16-v1", 2, 32, 2, 2
GAMMA, LAMBDA, CLIP, RATE = 0.99, 0.95, 0.2, 1e-3


def make_env():
    env = gym.make(ID, jobs=12, loads=(1.5,), engine="simpy")
    return gym.wrappers.RecordEpisodeStatistics(gym.wrappers.FlattenObservation(env))


def masks(infos):
    return torch.as_tensor(np.stack(infos["action_mask"]).astype(bool))


class Agent(nn.Module):
    def __init__(self, seen, actions):
        super().__init__()
        self.critic = nn.Sequential(nn.Linear(seen, 64), nn.Tanh(), nn.Linear(64, 1))
        self.actor = nn.Sequential(nn.Linear(seen, 64), nn.Tanh(), nn.Linear(64, actions))

    def act(self, seen, mask, action=None):
        chosen = Categorical(logits=self.actor(seen).masked_fill(~mask, -1e9))
        action = chosen.sample() if action is None else action
        return action, chosen.log_prob(action), chosen.entropy(), self.critic(seen).squeeze(-1)


torch.manual_seed(0)
envs = gym.vector.SyncVectorEnv([make_env] * ENVS)
agent = Agent(envs.single_observation_space.shape[0], int(envs.single_action_space.n))
optimizer = torch.optim.Adam(agent.parameters(), lr=RATE, eps=1e-5)
seen, infos = envs.reset(seed=0)
for update in range(UPDATES):
    rows = []
    for _ in range(STEPS):
        now, mask = torch.as_tensor(seen, dtype=torch.float32), masks(infos)
        with torch.no_grad():
            action, log_probability, _, value = agent.act(now, mask)
        seen, reward, terminated, truncated, infos = envs.step(action.numpy())
        over = torch.as_tensor(terminated | truncated, dtype=torch.float32)
        rows.append((now, mask, action, log_probability, value, torch.as_tensor(reward, dtype=torch.float32), over))
    observations, legal, actions, log_probabilities, values, rewards, overs = map(torch.stack, zip(*rows))
    with torch.no_grad():
        following = agent.critic(torch.as_tensor(seen, dtype=torch.float32)).squeeze(-1)
    advantages, last = torch.zeros_like(rewards), torch.zeros(ENVS)
    for step in reversed(range(STEPS)):
        after = following if step == STEPS - 1 else values[step + 1]
        error = rewards[step] + GAMMA * after * (1 - overs[step]) - values[step]
        advantages[step] = last = error + GAMMA * LAMBDA * (1 - overs[step]) * last
    returns = advantages + values
    for _ in range(EPOCHS):
        _, new, entropy, value = agent.act(observations, legal, actions)
        ratio = (new - log_probabilities).exp()
        scaled = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
        gain = torch.min(ratio * scaled, ratio.clamp(1 - CLIP, 1 + CLIP) * scaled).mean()
        loss = -gain + 0.5 * (value - returns).pow(2).mean() - 0.01 * entropy.mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"update {update + 1}: reward {rewards.sum().item():.2f}, loss {loss.item():.3f}")
PY
python ppo.py | tee told
grep -E '^update 2: reward -?[0-9.]+, loss -?[0-9.]+$' told
