"""What a product feature is: frame, one-dimensional bases, multisets, trie, evaluation."""
