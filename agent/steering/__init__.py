"""What a credit method may do to a rollout while it is played."""
