"""What language models are asked, one task a file: the prompt, the model of the answer, a version."""
