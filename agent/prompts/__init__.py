"""Between texts and tokens: prompts out of observations, and commands out of responses."""
