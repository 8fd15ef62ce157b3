"""What credit methods measure beyond the rollout: log-probabilities, continuations, judgements."""
