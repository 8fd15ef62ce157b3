"""What samples responses: in plain PyTorch, with vLLM, or on policy servers."""
