"""What several folds share, pure like themselves: payloads read, texts cut into tokens, what words say."""
