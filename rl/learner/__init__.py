"""What trains: the learner, its losses, and the engines below it."""
