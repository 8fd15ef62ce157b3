"""The agent's side of a rollout: prompts, policies, trajectories and the rollout loop."""
