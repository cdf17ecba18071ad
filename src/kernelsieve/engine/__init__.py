"""How product features are chosen: proposals, distinct draws, weights, anchors, scores."""
