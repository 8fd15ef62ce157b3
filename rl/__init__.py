"""Assembly, losses, learners and the training loop."""
